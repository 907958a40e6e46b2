//! A query under way.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use protocol::supervision::Event;

use super::{Events, Query};
use crate::ports::Disk;

/// Events that are looked at for one page.
const LOOKED_MAX: usize = 50_000;

/// Some of the events that are wanted.
#[derive(Debug, Default)]
pub struct Page {
    /// In order.
    pub events: Vec<Event>,
    /// Whether the present end of the log was reached.
    pub at_end: bool,
}

/// Gives the wanted events page by page; after the end, those that came since.
pub struct Search {
    query: Query,
    events: Events,
    /// The last wanted ones, until the end is reached for the first time.
    last: Option<VecDeque<Event>>,
}

impl Search {
    /// Begins. Blocks, as all of it does.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, query: Query) -> io::Result<Self> {
        let mut events = Events::open(disk.clone(), dir)?;
        if let Some(after) = &query.after {
            loop {
                match events.read()? {
                    Some(event) if event.id == *after => break,
                    Some(_) => {}
                    None => {
                        events = Events::open(disk, dir)?;
                        break;
                    }
                }
            }
        }
        let last = query.tail.map(|_| VecDeque::new());
        Ok(Self { query, events, last })
    }

    /// At most `limit` more of them.
    pub fn page(&mut self, limit: usize) -> io::Result<Page> {
        let mut page = Page::default();
        for _ in 0..LOOKED_MAX {
            if page.events.len() >= limit {
                return Ok(page);
            }
            let Some(event) = self.events.read()? else {
                page.events.extend(self.last.take().into_iter().flatten());
                page.at_end = true;
                return Ok(page);
            };
            if !self.query.filter.wants(&event) {
                continue;
            }
            match &mut self.last {
                None => page.events.push(event),
                Some(last) => {
                    last.push_back(event);
                    if last.len() > self.query.tail.unwrap_or_default() {
                        last.pop_front();
                    }
                }
            }
        }
        Ok(page)
    }

    /// Lines so far that are no events.
    pub fn unreadable(&self) -> u64 {
        self.events.unreadable()
    }
}
