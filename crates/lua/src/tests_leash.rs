//! What holds a script that others wait for.

use std::cell::Cell;
use std::rc::Rc;

use crate::{Answer, Call, Ended, Fcall, Host, Leash, Run, Stop, Value, Verdict, Vm};

const LEASH: usize = 512 << 10;

/// Answers each command with one text.
struct Gives(Vec<u8>);

impl Host for Gives {
    fn call(&mut self, _: Call<'_>) -> Result<Value<'_>, Stop> {
        Ok(Value::Bulk(&self.0))
    }

    fn log(&mut self, _: u8, _: &[u8]) {}
}

/// Releases the leash at the first command.
struct Releases(Leash);

impl Host for Releases {
    fn call(&mut self, _: Call<'_>) -> Result<Value<'_>, Stop> {
        self.0.release();
        Ok(Value::Nil)
    }

    fn log(&mut self, _: u8, _: &[u8]) {}
}

fn run(vm: &Vm, host: &mut dyn Host, text: &str, args: &[&[u8]], leash: Option<usize>) -> Ended {
    let run = Run {
        name: text,
        text: text.as_bytes(),
        keys: &[],
        args,
        leash,
    };
    vm.run(run, host)
}

fn quiet() -> Vm {
    Vm::new(64 << 20, || Verdict::Go).unwrap()
}

const DONE: Ended = Ended::Done(Answer::Integer(1));

#[test]
fn a_text_that_is_there_makes_the_leash_no_longer() {
    let vm = quiet();
    let host = &mut Gives(vec![b'x'; 600_000]);
    let again = "redis.call('x') ".repeat(6);
    let text = |n| {
        format!(
            "local s = redis.call('x') {again} local t = {{}} for i = 1, {n} do t[i + 0.5] = true end return 1"
        )
    };
    assert_eq!(run(&vm, host, &text(4_000), &[], Some(LEASH)), DONE);
    assert_eq!(
        run(&vm, host, &text(30_000), &[], Some(LEASH)),
        Ended::Outgrown
    );
    // Nor does an argument.
    let text = "local t = {} for i = 1, 30000 do t[i + 0.5] = true end return 1";
    let long = host.0.clone();
    let args = [&long[..]; 7];
    assert_eq!(run(&vm, host, text, &args, Some(LEASH)), Ended::Outgrown);
}

#[test]
fn what_was_there_before_makes_no_room() {
    let vm = quiet();
    let host = &mut Gives(Vec::new());
    let large = "local t = {} for i = 1, 60000 do t[i .. ''] = i end return 1";
    let each = "for i = 1, 20000 do local s = i .. 'y' end return 1";
    let collects = "for i = 1, 20000 do local s = i .. 'y' if i % 1000 == 0 then collectgarbage() end end return 1";
    for text in [each, collects] {
        assert_eq!(run(&vm, host, large, &[], None), DONE);
        assert_eq!(
            run(&vm, host, text, &[], Some(LEASH)),
            Ended::Outgrown,
            "{text}"
        );
        assert_eq!(run(&vm, host, text, &[], None), DONE);
    }
    // What scripts have left is collected between them.
    let little = "for i = 1, 2000 do local s = i .. ARGV[1] end return 1";
    let mut most = 0;
    for n in 0..400 {
        let arg = format!("{n}");
        assert_eq!(run(&vm, host, little, &[arg.as_bytes()], Some(LEASH)), DONE);
        most = most.max(vm.used_memory());
    }
    assert!(most < 12 << 20, "{most}");
    assert!(vm.used_memory() < 4 << 20, "{}", vm.used_memory());
}

const LIBRARY: &[u8] = b"local t, n = {}, 0
redis.register_function('keeps', function(_, args)
  for i = 1, 100 do n = n + 1 t[n .. ' of the library'] = args[1] end
  return 1
end)
redis.register_function('is_clean', function() local s = {} for i = 1, 50 do s[i] = i .. 'x' end return 1 end)";

fn call(vm: &Vm, function: &str, leash: Option<usize>) -> Ended {
    let call = Fcall {
        library: 1,
        text: LIBRARY,
        function,
        keys: &[],
        args: &[b"a"],
        leash,
    };
    vm.call(call, &mut Gives(Vec::new()))
}

#[test]
fn what_a_library_keeps_is_counted_over_its_calls() {
    let vm = quiet();
    for n in 0..2_000 {
        assert_eq!(call(&vm, "is_clean", Some(LEASH)), DONE);
        assert!(!vm.has_grown(), "{n}");
    }
    let mut calls = 0;
    while !vm.has_grown() {
        calls += 1;
        // Scripts between them that are compiled and forgotten hide nothing.
        let text = format!("return 1 --{calls}");
        let host = &mut Gives(Vec::new());
        assert_eq!(run(&vm, host, &text, &[], Some(LEASH)), DONE);
        if calls % 7 == 0 {
            vm.forget();
        }
        assert_eq!(call(&vm, "keeps", Some(LEASH)), DONE);
        assert!(
            calls < 100,
            "a hundred calls have kept a MiB, and nothing has told of it"
        );
    }
    // Where no others wait it may keep what it likes.
    let vm = quiet();
    for _ in 0..100 {
        assert_eq!(call(&vm, "keeps", None), DONE);
    }
    assert!(!vm.has_grown());
}

/// Few tables that hold each other, and are very many values as an answer.
const SHARED: &str = "local t = {1} for i = 1, tonumber(ARGV[1]) do t = {t, t} end return t";

#[test]
fn an_answer_is_bounded_where_others_wait() {
    let vm = quiet();
    let host = &mut Gives(vec![b'x'; 1 << 20]);
    let is_done = |ended: Ended| matches!(ended, Ended::Done(_));
    assert!(is_done(run(&vm, host, SHARED, &[b"8"], Some(LEASH))));
    assert_eq!(
        run(&vm, host, SHARED, &[b"11"], Some(LEASH)),
        Ended::Outgrown
    );
    assert!(is_done(run(&vm, host, SHARED, &[b"11"], None)));
    let texts = "local s = redis.call('x') return {s, s, s, s, s, s, s, s, s, s}";
    assert_eq!(run(&vm, host, texts, &[], Some(LEASH)), Ended::Outgrown);
    assert!(is_done(run(&vm, host, texts, &[], None)));
    // One that has written cannot begin again.
    let released = &mut Releases(vm.leash());
    let text = SHARED.replacen("local", "redis.call('x') local", 1);
    assert!(is_done(run(&vm, released, &text, &[b"11"], Some(LEASH))));
    let failed = Ended::Failed(b"ERR the script's answer is too large".to_vec());
    assert_eq!(run(&vm, released, &text, &[b"16"], Some(LEASH)), failed);
}

#[test]
fn a_script_hears_that_it_is_to_stop_while_its_answer_is_taken() {
    let looks = Rc::new(Cell::new(0));
    let seen = looks.clone();
    let vm = Vm::new(64 << 20, move || {
        seen.set(seen.get() + 1);
        match seen.get() > 100 {
            true => Verdict::Stop(Stop("ended".into())),
            false => Verdict::Go,
        }
    });
    let ended = run(&vm.unwrap(), &mut Gives(Vec::new()), SHARED, &[b"15"], None);
    assert_eq!(ended, Ended::Stopped(Stop("ended".into())));
}

#[test]
fn a_long_text_is_hashed_where_no_others_wait() {
    let looks = Rc::new(Cell::new(0));
    let seen = looks.clone();
    let vm = Vm::new(64 << 20, move || {
        seen.set(seen.get() + 1);
        Verdict::Go
    });
    let (vm, text) = (vm.unwrap(), "return #redis.sha1hex(ARGV[1]) == 40 and 1");
    let host = &mut Gives(Vec::new());
    assert_eq!(run(&vm, host, text, &[b"abc"], Some(LEASH)), DONE);
    let long = vec![b'x'; 4 << 20];
    assert_eq!(run(&vm, host, text, &[&long], Some(LEASH)), Ended::Outgrown);
    looks.set(0);
    assert_eq!(run(&vm, host, text, &[&long], None), DONE);
    assert!(looks.get() >= 16, "{}", looks.get());
}
