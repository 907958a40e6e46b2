//! Exports the spans of turns over OTLP/HTTP.
//!
//! On when `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` names a collector. The other standard
//! variables hold, too: `OTEL_SDK_DISABLED`, `OTEL_TRACES_EXPORTER=none`, `OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER` with `_ARG`, `OTEL_EXPORTER_OTLP_HEADERS`, `_PROTOCOL`
//! (`http/protobuf`, `http/json`), `_TIMEOUT`, and `OTEL_BSP_*` for the bounded queue. Sources: the OpenTelemetry
//! specification, "SDK environment variables" and "OTLP exporter"; names of fields: its conventions for generative AI.
//!
//! The id of a trace is the turn's id without its dashes. Whether a turn is sampled follows from its id, so that all its
//! spans are there or none, whichever process made them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor};
use protocol::metrics::{ByState, Metrics};
use protocol::trace::{Span, Spans, Step, Traces, Value};
use tokio::runtime::Handle;

/// Longest wait for a collector that says nothing else; `OTEL_EXPORTER_OTLP_TIMEOUT` changes it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How much of a collector's answer is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// A turn's id ends in so many random bits.
const RANDOM_BITS: u32 = 56;

/// The exporter; a thread of its own sends what it is given.
pub struct Exporter {
    processor: BatchSpanProcessor,
    /// Turns whose random bits are below this are sampled.
    below: u64,
    scope: InstrumentationScope,
    metrics: Metrics,
}

/// Counts what reaches the collector.
#[derive(Debug)]
struct Counted {
    to: OtlpExporter,
    metrics: Metrics,
}

/// The program's HTTP client, on the runtime that it was made for: the exporter's thread has none.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
    timeout: Duration,
}

/// Starts the export if the environment asks for it, and lets `metrics` say where spans go.
pub fn start(metrics: &mut Metrics, env: &BTreeMap<String, String>) -> anyhow::Result<Option<Arc<Exporter>>> {
    let set = |name: &str| env.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let asked = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or(set("OTEL_EXPORTER_OTLP_ENDPOINT")).is_some();
    let off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || set("OTEL_TRACES_EXPORTER") == Some("none");
    if !asked || off {
        return Ok(None);
    }
    let timeout = set("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT").or(set("OTEL_EXPORTER_OTLP_TIMEOUT"));
    let timeout = timeout.and_then(|ms| ms.parse().ok()).map_or(TIMEOUT, Duration::from_millis);
    let below = below(set("OTEL_TRACES_SAMPLER"), set("OTEL_TRACES_SAMPLER_ARG"))?;
    let http = provider::http_client().context("no HTTPS client can be made for the collector")?;
    let client = Client { http, runtime: Handle::current(), timeout };
    let exporter = OtlpExporter::builder().with_http().with_http_client(client).build();
    let to = exporter.context("OTEL_EXPORTER_OTLP_*: traces cannot be exported")?;
    let mut processor = BatchSpanProcessor::builder(Counted { to, metrics: metrics.clone() }).build();
    let mut resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if set("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("greenroom");
    }
    processor.set_resource(&resource.build());
    let scope = InstrumentationScope::builder("greenroom").with_version(env!("CARGO_PKG_VERSION")).build();
    let exporter = Arc::new(Exporter { processor, below, scope, metrics: metrics.clone() });
    metrics.traces = Traces::to(exporter.clone());
    Ok(Some(exporter))
}

/// The share of turns that is sampled, as a bound of their random bits.
fn below(sampler: Option<&str>, argument: Option<&str>) -> anyhow::Result<u64> {
    let all = 1 << RANDOM_BITS;
    match sampler.unwrap_or("parentbased_always_on") {
        "always_on" | "parentbased_always_on" => Ok(all),
        "always_off" | "parentbased_always_off" => Ok(0),
        "traceidratio" | "parentbased_traceidratio" => {
            let share: f64 = argument.unwrap_or("1").parse().context("OTEL_TRACES_SAMPLER_ARG: not a number")?;
            anyhow::ensure!((0.0..=1.0).contains(&share), "OTEL_TRACES_SAMPLER_ARG: {share} is not between 0 and 1");
            Ok((share * all as f64) as u64)
        }
        other => anyhow::bail!("OTEL_TRACES_SAMPLER: there is no sampler {other:?} here"),
    }
}

// === impl Exporter ===

impl Exporter {
    /// Sends what is left and ends the thread. Blocks.
    pub fn stop(&self) {
        if let Err(error) = self.processor.shutdown() {
            tracing::warn!(%error, "not all spans reached the collector");
        }
    }

    fn data(&self, span: Span) -> SpanData {
        let Span { turn, step, begun_us, ended_us, error, fields } = span;
        let span_id = |step: Step| SpanId::from_bytes(step.id(turn).to_be_bytes());
        let trace_id = TraceId::from_bytes(turn.0.into_bytes());
        let at = |us| SystemTime::UNIX_EPOCH + Duration::from_micros(us);
        let name = name(step, &fields);
        let mut attributes: Vec<KeyValue> = fields.into_iter().map(|(key, value)| attribute(key, value)).collect();
        attributes.extend(error.map(|class| KeyValue::new("error.type", class)));
        SpanData {
            span_context: SpanContext::new(trace_id, span_id(step), TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: step.parent().map_or(SpanId::INVALID, span_id),
            parent_span_is_remote: false,
            span_kind: match step {
                Step::Accept => SpanKind::Server,
                Step::Model { .. } => SpanKind::Client,
                Step::Push { .. } => SpanKind::Producer,
                Step::Turn
                | Step::Deliver
                | Step::Enqueue
                | Step::Attempt(_)
                | Step::Tool { .. }
                | Step::Commit { .. } => SpanKind::Internal,
            },
            name,
            start_time: at(begun_us.min(ended_us)),
            end_time: at(ended_us),
            attributes,
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: error.map_or(Status::Unset, Status::error),
            instrumentation_scope: self.scope.clone(),
        }
    }
}

impl Spans for Exporter {
    fn end(&self, span: Span) {
        let random = (span.turn.0.as_u128() as u64) & ((1 << RANDOM_BITS) - 1);
        if random < self.below {
            self.metrics.work.spans.get_or_create(&ByState { state: "ended" }).inc();
            self.processor.on_end(self.data(span));
        }
    }
}

fn attribute(key: &'static str, value: Value) -> KeyValue {
    match value {
        Value::Word(word) => KeyValue::new(key, word),
        Value::Text(text) => KeyValue::new(key, text),
        Value::Number(number) => KeyValue::new(key, i64::try_from(number).unwrap_or(i64::MAX)),
    }
}

/// `chat gpt-x`, `execute_tool exec`, `invoke_agent greenroom`: what the conventions want behind the operation; and
/// `push webhook`.
fn name(step: Step, fields: &[(&'static str, Value)]) -> Cow<'static, str> {
    let target = match step {
        Step::Model { .. } => "gen_ai.request.model",
        Step::Tool { .. } => "gen_ai.tool.name",
        Step::Attempt(_) => "gen_ai.agent.name",
        Step::Push { .. } => "messaging.destination.name",
        Step::Turn | Step::Accept | Step::Enqueue | Step::Commit { .. } | Step::Deliver => {
            return step.name().into();
        }
    };
    match fields.iter().find(|(key, _)| *key == target).map(|(_, value)| value) {
        Some(Value::Text(text)) => format!("{} {text}", step.name()).into(),
        Some(Value::Word(word)) => format!("{} {word}", step.name()).into(),
        Some(Value::Number(_)) | None => step.name().into(),
    }
}

// === impl Counted ===

impl SpanExporter for Counted {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        let spans = batch.len() as u64;
        let sent = self.to.export(batch);
        async move {
            let result = sent.await;
            let state = if result.is_ok() { "exported" } else { "failed" };
            self.metrics.work.spans.get_or_create(&ByState { state }).inc_by(spans);
            result
        }
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.to.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.to.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.to.set_resource(resource);
    }
}

// === impl Client ===

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Client {
    fn send_bytes<'me, 'answer>(&'me self, request: Request<Bytes>) -> Answer<'answer>
    where
        'me: 'answer,
        Self: 'answer,
    {
        let (http, timeout) = (self.http.clone(), self.timeout);
        let sent = self.runtime.spawn(async move { tokio::time::timeout(timeout, send(http, request)).await });
        Box::pin(async move { sent.await?? })
    }
}

async fn send(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let mut reply = http.execute(request.try_into()?).await?;
    let mut response = Response::builder().status(reply.status());
    if let Some(headers) = response.headers_mut() {
        headers.clone_from(reply.headers());
    }
    let mut body = Vec::new();
    while let Some(piece) = reply.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > ANSWER_BYTES_MAX {
            return Err("the collector's answer is too long".into());
        }
    }
    Ok(response.body(body.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_sampled_turns_is_what_the_environment_says() {
        let all = 1_u64 << RANDOM_BITS;
        for (sampler, argument, expect) in [
            (None, None, Some(all)),
            (Some("always_on"), None, Some(all)),
            (Some("parentbased_always_off"), None, Some(0)),
            (Some("traceidratio"), Some("0.25"), Some(all / 4)),
            (Some("parentbased_traceidratio"), Some("1"), Some(all)),
            (Some("traceidratio"), None, Some(all)),
            (Some("traceidratio"), Some("2"), None),
            (Some("traceidratio"), Some("x"), None),
            (Some("jaeger_remote"), None, None),
        ] {
            assert_eq!(below(sampler, argument).ok(), expect, "{sampler:?} {argument:?}");
        }
    }
}
