//! The admin API of a running gateway, as the other commands use it.

use anyhow::Context;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use crate::app::beacon::Beacon;
use crate::app::lock::Lock;
use crate::config::Paths;
use crate::exit::{Exit, ExitCode};

/// A gateway that answers.
pub struct Admin {
    client: Client,
    beacon: Beacon,
}

impl Admin {
    /// Finds the gateway of this data directory; `None` when none runs.
    pub async fn find(paths: &Paths) -> anyhow::Result<Option<Self>> {
        let Some(beacon) = Beacon::read(&paths.run) else { return Ok(None) };
        if Lock::holder(&paths.run.join("lock")).is_none() {
            return Ok(None);
        }
        let client = provider::http_client().context("an HTTP client cannot be made")?;
        Ok(Some(Self { client, beacon }))
    }

    /// Finds the gateway, or fails with the exit code for "no gateway".
    pub async fn require(paths: &Paths) -> anyhow::Result<Self> {
        let missing = || {
            let message = hidden(paths).unwrap_or_else(|| {
                format!("no gateway runs on {}; start one with `greenroom gateway`", paths.data.display())
            });
            Exit::new(ExitCode::NoGateway, message)
        };
        Ok(Self::find(paths).await?.ok_or_else(missing)?)
    }

    /// What the gateway says about itself.
    pub fn beacon(&self) -> &Beacon {
        &self.beacon
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/admin/v1/{path}", self.beacon.admin_url);
        self.client.request(method, url).bearer_auth(&self.beacon.token)
    }

    /// `GET path`, as JSON.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(checked(self.request(Method::GET, path).send().await).await?.json().await?)
    }

    /// `GET path`, as a stream of lines.
    pub async fn stream(&self, path: &str) -> anyhow::Result<Response> {
        checked(self.request(Method::GET, path).send().await).await
    }

    /// `GET path`, as all lines of a stream that ends.
    pub async fn lines(&self, path: &str) -> anyhow::Result<Vec<String>> {
        let text = self.stream(path).await?.text().await?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// `POST path` with a JSON body; the answer may be a stream of lines.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        checked(self.request(Method::POST, path).json(body).send().await).await
    }

    /// All items of a list, page by page.
    pub async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = match &cursor {
                None => self.get(path).await?,
                Some(after) => self.get(&format!("{path}?cursor={}", encode(after))).await?,
            };
            items.extend(page["items"].as_array().cloned().unwrap_or_default());
            match page["next"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(items),
            }
        }
    }
}

/// A gateway that runs but could not say where, in words.
pub fn hidden(paths: &Paths) -> Option<String> {
    let who = Lock::gateway(&paths.run.join("lock"))?;
    let file = paths.run.join("gateway.json");
    Some(format!("running, {who}; its address is not in {}: it is starting, or its disk is full", file.display()))
}

async fn checked(sent: reqwest::Result<Response>) -> anyhow::Result<Response> {
    let response = sent.map_err(|error| {
        Exit::new(ExitCode::NoGateway, format!("the gateway does not answer: {}", error.without_url()))
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body: Value = response.json().await.unwrap_or_default();
    let message = body["error"]["message"].as_str().unwrap_or("the gateway refused").to_owned();
    let told = body["error"].is_object();
    let code = ExitCode::of_answer(status.as_u16(), body["error"]["code"].as_str().unwrap_or_default());
    let exit = Exit::new(code, message);
    Err(if told { exit.with_body(body) } else { exit }.into())
}

/// Percent-encodes a path segment or query value.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Cuts a stream of bytes into complete lines.
#[derive(Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// Adds bytes and takes the complete lines out.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.0.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_encoded_for_a_path() {
        assert_eq!(encode("api:a/b é"), "api%3Aa%2Fb%20%C3%A9");
    }

    #[test]
    fn lines_are_cut_wherever_the_chunks_end() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"one\ntw"), ["one"]);
        assert_eq!(lines.push(b"o\n\n"), ["two", ""]);
        assert!(lines.push(b"rest").is_empty());
    }
}
