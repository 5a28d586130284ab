//! What a follower says to a server, and hears from it: how far the file is there.

use std::collections::BTreeMap;

use super::reading::read;
use super::{Around, Driven, Follower, Life, Slot};
use crate::buffer::Buffer;
use crate::counts::Fatal;
use crate::file_system::FileSystem;
use crate::network::{Lane, Matter, Network, Stand};

/// Acknowledgements of several producers do not come in the order in which the server has stored: so many are asked about.
const PROBED: usize = 64;

impl<F, L: Lane> Follower<F, L> {
    pub(super) fn open<S, N>(&mut self, around: &mut Around<'_, S, N>) -> Result<(), Fatal>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let server = around.line.server;
        let name = &around.settings.servers[server];
        let lane = around
            .network
            .open(name, &self.entry.producer)
            .map_err(|ended| Fatal(ended.why))?;
        self.slot = Some(Slot {
            lane,
            server,
            opened: false,
            unheard: Some(around.now),
            since: around.now,
            busy_at: around.now,
        });
        around.free -= 1;
        Ok(())
    }

    /// Takes in what the server has said; whether there is no reason to wait for it.
    pub(super) fn heard<S, N>(
        &mut self,
        around: &mut Around<'_, S, N>,
        driven: &mut Driven,
    ) -> Result<bool, Fatal>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let Some(slot) = &mut self.slot else {
            return Ok(true);
        };
        match slot.lane.stand() {
            Stand::Connecting(trouble) => {
                around.line.trouble = trouble;
                Ok(false)
            }
            Stand::Ended(ended) if ended.matter == Matter::Producer => {
                let server = slot.server;
                self.slot = None;
                // The server was heard.
                around.line.opened(server);
                let path = self.entry.path.display();
                let why = format!("{path}: {}. Nothing more of it is shipped", ended.why);
                self.fail(around, why);
                driven.dirty = true;
                Ok(false)
            }
            Stand::Ended(ended) if ended.matter == Matter::Crowded => {
                let server = slot.server;
                self.slot = None;
                // The server was heard.
                around.line.opened(server);
                if self.has_file() {
                    self.displace();
                }
                self.turned_away(around, &ended.why);
                Ok(false)
            }
            Stand::Ended(ended) => {
                let (server, since) = (slot.server, slot.unheard);
                self.slot = None;
                around.has_broken = true;
                if self.has_file() {
                    // The rest is all in the file.
                    self.displace();
                }
                if ended.matter == Matter::SetBack {
                    // The next welcome says how far.
                    around.was_set_back = true;
                    self.is_verified = false;
                    driven.busy = true;
                    return Ok(false);
                }
                let lost = (server, since.unwrap_or(around.now));
                around
                    .line
                    .lost(lost, ended, around.settings, around.now, around.events)?;
                driven.busy = true;
                Ok(false)
            }
            Stand::Open {
                settled,
                forgotten,
                payload_max,
                trouble,
            } => {
                let (opened, server) = (slot.opened, slot.server);
                slot.opened = true;
                match trouble {
                    None => slot.unheard = None,
                    Some(_) => drop(slot.unheard.get_or_insert(around.now)),
                }
                around.line.trouble = trouble;
                around.line.payload_max = payload_max as usize;
                if !opened {
                    around.line.opened(server);
                    self.let_in(around);
                    self.begin((settled, forgotten), server, around);
                    driven.dirty = true;
                    let goes_on = self.slot.is_some() && self.life != Life::Failed;
                    return Ok(goes_on && !self.is_in_trouble());
                }
                driven.dirty |= self.settle(settled, server, around);
                Ok(true)
            }
        }
    }

    /// A server has said how far it is: places the file there, or where another one was.
    fn begin<S, N>(
        &mut self,
        (mark, is_forgotten): (Option<u64>, bool),
        server: usize,
        around: &mut Around<'_, S, N>,
    ) where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let name = &around.settings.servers[server];
        let mark = mark.unwrap_or(0);
        let had = self.entry.servers.get(name).copied().unwrap_or(0);
        let path = self.entry.path.display();
        // What was forgotten with its producer may be stored all the same.
        let is_set_back = mark < had && !is_forgotten;
        if is_set_back && !self.entry.unsure && !self.is_truncated {
            // The state first notes that other servers are to be asked about.
            around.was_set_back = true;
            self.slot = None;
            return;
        }
        self.is_verified = true;
        self.entry.unsure = false;
        if mark > self.len && !self.is_truncated {
            let why = format!(
                "{path} is not what was shipped: {name} has {mark} bytes of it, and it has {}. \
                 Nothing more of it is shipped",
                self.len
            );
            self.fail(around, why);
            return;
        }
        if is_set_back {
            if self.is_truncated {
                around.was_set_back = true;
                around.counts.losses += 1;
                around.events.push(format!(
                    "{name} had acknowledged {path} up to byte {had}, and has it only up to byte {mark} now; the file \
                     has been truncated since, so what is between is lost"
                ));
            } else {
                around.counts.set_back += 1;
                around.events.push(match around.other_stream {
                    Some(other) => format!(
                        "{name} has {path} up to byte {had} in stream {other}, and up to byte {mark} in stream {}, which is shipped to \
                         now: it is sent from there",
                        around.settings.stream
                    ),
                    None => format!(
                        "{name} had acknowledged {path} up to byte {had}, and has it only up to byte {mark} now, as after \
                         it was restored from a backup: it is sent again from there"
                    ),
                });
            }
        }
        let at = match is_set_back && !self.is_truncated {
            true => mark,
            false => self.entry.acked.max(mark),
        };
        let offered = self.offered.back().map(|(id, _)| *id);
        self.offered.clear();
        if mark > had {
            self.was_acknowledged(name, around.last);
        }
        self.entry.servers.insert(name.clone(), mark);
        self.entry.acked = at;
        if self.is_truncated || self.seeking.is_some() {
            if offered.is_some_and(|id| id > at) {
                around.counts.losses += 1;
                around.events.push(format!(
                    "{path} was truncated before a server had acknowledged it: what it had between \
                     byte {at} and what is still in memory may be lost"
                ));
            }
            self.buffer.forget(at);
            self.is_placed = true;
            return;
        }
        let is_there = self.is_placed && !self.buffer.has_messages() && self.buffer.next() == at;
        if !is_there {
            let file = self.file.as_ref().expect("it is open");
            let wanted = Buffer::wants_before(at);
            match read(around.files, file, at - wanted as u64, wanted) {
                Ok(before) if before.len() == wanted => self.buffer.seek(at, &before),
                // The file has just become shorter, which the next look finds.
                Ok(_) => self.slot = None,
                Err(e) => self.stumble(around, &e),
            }
            self.is_placed = self.slot.is_some();
        }
    }

    /// Notes that this producer is among the ones that were acknowledged last.
    fn was_acknowledged(&self, server: &str, last: &mut BTreeMap<String, Vec<String>>) {
        let producer = &self.entry.producer;
        let Some(last) = last.get_mut(server) else {
            last.insert(server.to_owned(), vec![producer.clone()]);
            return;
        };
        if last.last() != Some(producer) {
            last.retain(|other| other != producer);
            let surplus = (last.len() + 1).saturating_sub(PROBED);
            last.drain(..surplus);
            last.push(producer.clone());
        }
    }

    /// Whether that was news.
    fn settle<S: FileSystem, N: Network>(
        &mut self,
        settled: Option<u64>,
        server: usize,
        around: &mut Around<'_, S, N>,
    ) -> bool {
        let Some(settled) = settled else { return false };
        let name = &around.settings.servers[server];
        let mut news = false;
        while let Some(&(id, count)) = self.offered.front()
            && id <= settled
        {
            around.counts.acknowledged += count as u64;
            self.offered.pop_front();
            news = true;
        }
        let had = self.entry.servers.get_mut(name);
        if let Some(had) = had
            && *had < settled
        {
            *had = settled;
            news = true;
        }
        let dealt = if self.offered.is_empty() && !self.buffer.has_messages() && self.is_placed {
            self.buffer.next()
        } else {
            settled
        };
        if dealt > self.entry.acked {
            around.counts.bytes += dealt - self.entry.acked;
            self.entry.acked = dealt;
            news = true;
        }
        if news {
            self.was_acknowledged(name, around.last);
            around.line.progressed();
        }
        news
    }
}
