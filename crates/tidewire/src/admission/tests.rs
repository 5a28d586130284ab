//! The rules against a model that remembers every client, and what an attacker with many addresses
//! can do.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::admission::table::masked_by;

fn at(ip: impl Into<IpAddr>) -> Endpoint {
    Endpoint::from((ip.into(), 4000))
}

fn seconds(s: u64) -> Instant {
    Instant::from_nanos(s * 1_000_000_000)
}

/// Few addresses, in few networks, of both families and in both clothes.
fn address(n: u8) -> IpAddr {
    let (net, host) = (n / 16 % 4, n % 4);
    let v4 = Ipv4Addr::new(192, 0, net, host);
    match n / 4 % 4 {
        0 | 1 => v4.into(),
        2 => v4.to_ipv6_mapped().into(),
        _ => Ipv6Addr::new(
            0x2001,
            0xdb8,
            net.into(),
            host.into(),
            0,
            0,
            0,
            u16::from(n),
        )
        .into(),
    }
}

/// A bucket that is counted in millionths of a connection, exactly.
struct Bucket {
    level: u64,
    at_ns: u64,
}

/// Forgets nothing.
struct Model {
    rules: Rules,
    /// Connections a second, and at once.
    rate: u64,
    burst: u64,
    open: Vec<IpAddr>,
    buckets: HashMap<Option<IpAddr>, Bucket>,
}

impl Model {
    fn same(&self, bits: (u8, u8), a: IpAddr, b: IpAddr) -> bool {
        masked_by(a, bits.0, bits.1) == masked_by(b, bits.0, bits.1)
    }

    fn full(&self, whose: Option<IpAddr>, now_ns: u64) -> u64 {
        let most = self.burst * 1_000_000;
        let bucket = self.buckets.get(&whose);
        bucket.map_or(most, |b| {
            // A whole interval is a millisecond's multiple, so nothing is lost in rounding.
            most.min(b.level + (now_ns - b.at_ns) * self.rate / 1000)
        })
    }

    fn admit(&mut self, ip: IpAddr, now_ns: u64) -> Result<(), Refusal> {
        let count = |bits| {
            let others = self
                .open
                .iter()
                .filter(|other| self.same(bits, ip, **other));
            others.count()
        };
        let address = masked_by(ip, 32, 64);
        let full = |whose| self.full(whose, now_ns) >= 1_000_000;
        if self.open.len() >= self.rules.connections.unwrap() {
            return Err(Refusal::ConnectionLimit);
        } else if !full(None) {
            return Err(Refusal::AcceptRate);
        } else if count((32, 64)) >= self.rules.per_address.unwrap() as usize {
            return Err(Refusal::AddressLimit);
        } else if !full(Some(address)) {
            return Err(Refusal::AddressRate);
        } else if count((24, 48)) >= self.rules.per_prefix.unwrap() as usize {
            return Err(Refusal::PrefixLimit);
        }
        for whose in [None, Some(address)] {
            let level = self.full(whose, now_ns) - 1_000_000;
            let at_ns = now_ns;
            self.buckets.insert(whose, Bucket { level, at_ns });
        }
        self.open.push(ip);
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Come(u8),
    Go(u8),
    /// Milliseconds pass.
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => any::<u8>().prop_map(Step::Come),
        3 => any::<u8>().prop_map(Step::Go),
        2 => (0u16..2000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn it_lets_in_whom_the_rules_let_in(
        steps in steps(),
        connections in 1usize..30,
        per_address in 1u32..8,
        per_prefix in 1u32..12,
        // Rates that divide a second into whole milliseconds.
        rate in prop_oneof![Just(1u32), Just(2), Just(5), Just(10), Just(50)],
        burst in 1u32..12,
    ) {
        let both = Rate::new(rate, Duration::from_secs(1)).burst(burst);
        let rules = Rules {
            connections: Some(connections),
            per_address: Some(per_address),
            per_prefix: Some(per_prefix),
            rate: Some(both),
            rate_per_address: Some(both),
            ..Rules::default()
        };
        let admission = Admission::new(rules.clone());
        let (rate, burst) = (u64::from(rate), u64::from(burst));
        let (open, buckets) = (Vec::new(), HashMap::new());
        let mut model = Model { rules, rate, burst, open, buckets };
        let mut now_ns = 0;
        for step in steps {
            match step {
                Step::Come(n) => {
                    let ip = address(n);
                    let got = admission.admit(&at(ip), Instant::from_nanos(now_ns));
                    prop_assert_eq!(got, model.admit(ip, now_ns));
                }
                Step::Go(n) if !model.open.is_empty() => {
                    let gone = model.open.swap_remove(usize::from(n) % model.open.len());
                    admission.leave(&at(gone));
                }
                Step::Go(_) => {}
                Step::Wait(ms) => now_ns += u64::from(ms) * 1_000_000,
            }
            prop_assert_eq!(admission.open(), model.open.len());
        }
        for gone in model.open.drain(..) {
            admission.leave(&at(gone));
        }
        prop_assert_eq!(admission.open(), 0);
        // Only debts are remembered, of addresses that were there.
        prop_assert!(admission.sources() <= 64);
    }

    /// Whatever comes: a client that several doors judge is counted at all of them or at none.
    #[test]
    fn a_refusal_by_one_limit_is_forgotten_by_the_others(comes in proptest::collection::vec(any::<u8>(), 1..60)) {
        let with = |per_address, rate: &str| Admission::new(Rules {
            per_address: Some(per_address),
            rate: Some(rate.parse().unwrap()),
            rate_per_address: Some("1000/s".parse().unwrap()),
            ..Rules::default()
        });
        let gates = [with(5, "1000/s"), with(3, "1000/s:20")];
        let mut within = 0;
        for n in comes {
            let from = at(address(n));
            let passed = gates.iter().take_while(|gate| gate.admit(&from, seconds(1)).is_ok()).count();
            if passed < gates.len() {
                gates[..passed].iter().for_each(|gate| gate.discount(Part::Whole, &from, true));
            } else {
                within += 1;
            }
            prop_assert_eq!([gates[0].open(), gates[1].open()], [within; 2]);
        }
        // A refused connection uses up no rate: the first door still admits the rest of its thousand.
        let left = (0..2000u32).take_while(|i| {
            gates[0].admit(&at(Ipv4Addr::from(0x0a00_0000 + i)), seconds(1)).is_ok()
        });
        prop_assert_eq!(left.count(), 1000 - within);
    }
}

#[test]
fn very_many_addresses_take_no_more_memory() {
    let rules = Rules {
        per_address: Some(2),
        per_prefix: Some(2),
        rate_per_address: Some("10/h:2".parse().unwrap()),
        remembered: 1000,
        ..Rules::default()
    };
    let admission = Admission::new(rules);
    let address = |n: u128| at(Ipv6Addr::from((0x2001_0db8_u128 << 96) + (n << 64)));
    for n in 0..200_000_u128 {
        let from = address(n << 16);
        assert_eq!(admission.admit(&from, seconds(1)), Ok(()));
        admission.leave(&from);
        assert!(admission.sources() <= 1000, "{}", admission.sources());
    }
    // The client that came last is remembered all the same.
    let last = address(199_999 << 16);
    assert_eq!(admission.admit(&last, seconds(1)), Ok(()));
    assert_eq!(
        admission.admit(&last, seconds(1)),
        Err(Refusal::AddressRate)
    );
}

#[test]
fn debts_are_forgotten_when_they_are_paid() {
    let rules = Rules {
        rate_per_address: Some("60/m:3".parse().unwrap()),
        ..Rules::default()
    };
    let admission = Admission::new(rules);
    for round in 0..100 {
        // Three at once and no fourth, every three seconds, whatever other clients have come
        // meanwhile.
        let now = seconds(1 + round * 3);
        for i in 0..20u8 {
            let from = at([10, 0, 0, i]);
            for n in 0..4 {
                let came = admission.admit(&from, now);
                assert_eq!(came.is_ok(), n < 3, "{round} {i} {n}");
                if came.is_ok() {
                    admission.leave(&from);
                }
            }
        }
        assert!(admission.sources() <= 40);
    }
}

#[test]
fn ipv6_hosts_are_told_apart_where_that_is_asked_for() {
    let with = |address_v6| {
        Admission::new(Rules {
            per_address: Some(1),
            address_v6,
            ..Rules::default()
        })
    };
    let [one, other] = ["[2001:db8::1]:5", "[2001:db8::2]:5"].map(|a| a.parse().unwrap());
    for (bits, second) in [(64, Err(Refusal::AddressLimit)), (128, Ok(()))] {
        let admission = with(bits);
        assert_eq!(admission.admit(&one, seconds(1)), Ok(()));
        assert_eq!(admission.admit(&other, seconds(1)), second);
    }
}

#[test]
fn unix_sockets_count_in_all_and_have_no_address() {
    let admission = Admission::new(Rules {
        connections: Some(3),
        per_address: Some(1),
        per_prefix: Some(1),
        rate_per_address: Some("1/h".parse().unwrap()),
        ..Rules::default()
    });
    let from: Endpoint = "unix:".parse().unwrap();
    for _ in 0..3 {
        assert_eq!(admission.admit(&from, seconds(1)), Ok(()));
    }
    assert_eq!(
        admission.admit(&from, seconds(1)),
        Err(Refusal::ConnectionLimit)
    );
}

#[test]
fn time_that_goes_back_stands_still() {
    let admission = Admission::new(Rules {
        rate: Some("1/s".parse().unwrap()),
        ..Rules::default()
    });
    let from = at([192, 0, 2, 1]);
    assert_eq!(admission.admit(&from, seconds(10)), Ok(()));
    assert_eq!(admission.admit(&from, seconds(2)), Err(Refusal::AcceptRate));
    assert_eq!(admission.admit(&from, seconds(11)), Ok(()));
}

#[test]
fn rules_that_cannot_be_meant_are_refused() {
    type Change = fn(&mut Rules);
    let wrong: [(&str, Change); 7] = [
        ("connections", |r| r.connections = Some(0)),
        ("per_address", |r| r.per_address = Some(0)),
        ("per_prefix", |r| r.per_prefix = Some(0)),
        ("address_v6", |r| r.address_v6 = 129),
        ("prefix_v4", |r| r.prefix_v4 = 33),
        ("prefix_v6", |r| r.prefix_v6 = 129),
        ("remembered", |r| r.remembered = 1),
    ];
    for (name, change) in wrong {
        let mut rules = Rules::default();
        change(&mut rules);
        let why = rules.check().unwrap_err();
        assert!(why.starts_with(&format!("`{name}`")), "{why}");
        let mut builder = crate::Builder::new();
        builder.admission(Admission::new(rules.clone()));
        assert!(builder.start().unwrap_err().to_string().contains(&why));
        let mut builder = crate::Builder::new();
        let service = builder.service(crate::on_input(|_, _| crate::Next::More));
        let listen = crate::Listen::at("127.0.0.1:0").admission(Admission::new(rules));
        builder.listen(service, listen);
        assert!(builder.start().unwrap_err().to_string().contains(&why));
    }
}
