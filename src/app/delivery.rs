//! Push delivery, as this process does it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use channel::outbox::{PushChannel, PushChannels};
use channel::webhook::Sender;
use domain::text::TextLimit;
use supervision::ports::Ports;

use super::parts;
use crate::config::Config;

/// The configured channels, and `own` ones of the program.
pub fn channels(config: &Config, own: Vec<Arc<dyn PushChannel>>, ports: &Ports) -> anyhow::Result<PushChannels> {
    let mut channels = PushChannels::new();
    if let Some(sender) = parts::webhook_sender(config)? {
        let client = provider::http_client().context("an HTTP client cannot be made")?;
        add(&mut channels, Arc::new(Sender::new(sender, client, ports.clock.clone())));
    }
    for channel in own {
        add(&mut channels, channel);
    }
    Ok(channels)
}

/// Adds one.
pub fn add(channels: &mut PushChannels, channel: Arc<dyn PushChannel>) {
    channels.insert(channel.name().into(), channel);
}

/// The longest message of each channel.
pub fn limits(channels: &PushChannels) -> BTreeMap<Arc<str>, TextLimit> {
    channels.iter().map(|(name, channel)| (Arc::clone(name), channel.limit())).collect()
}
