//! The upstream source against an upstream that misbehaves: nothing crashes, nothing is deleted that was not, the good
//! resources stay in force, and the upstream receives the reason.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use pilothouse::{
    model::{Kind, Mesh, mcp},
    proto::{
        envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        wkt::Any,
    },
    settings::UpstreamSettings,
    sources::{
        SourcePort, SourceState,
        xds::{UpstreamSource, UpstreamTarget},
    },
    testing::{ScriptedStream, ScriptedUpstream},
};
use tonic::Status;

use crate::{
    DEADLINE,
    recorder::{Recorder, run},
    resources::{URL, bad, entry},
};

type Sotw = ScriptedStream<DiscoveryRequest, DiscoveryResponse>;

/// A source that runs against a scripted upstream, and its deliveries.
struct Stage {
    upstream: ScriptedUpstream<DiscoveryRequest, DiscoveryResponse>,
    port: SourcePort,
    recorder: Arc<Recorder>,
}

impl Stage {
    async fn set(change: impl FnOnce(&mut UpstreamSettings)) -> Self {
        let upstream = ScriptedUpstream::start(None).await.unwrap();
        let mut settings = UpstreamSettings { first_pause: Duration::from_millis(20), ..Default::default() };
        change(&mut settings);
        let target = UpstreamTarget::of_settings(&upstream.address.to_string(), &settings, &Mesh::default()).unwrap();
        let (port, recorder) = run(&UpstreamSource::new(target, &settings, DEADLINE * 10));
        Self { upstream, port, recorder }
    }

    /// Accepts a stream and answers every type: ServiceEntries with these, the others with nothing.
    async fn answer(&mut self, entries: &[Any]) -> Sotw {
        let mut stream = self.upstream.accept().await.unwrap();
        let mut open: BTreeSet<String> =
            Kind::ALL.iter().filter(|k| mcp::is_carried(**k)).filter_map(|k| mcp::type_urls(*k).next()).collect();
        while !open.is_empty() {
            let request = stream.next().await.unwrap();
            if request.response_nonce.is_empty() {
                assert!(open.remove(&request.type_url), "{}", request.type_url);
                let resources = if request.type_url == URL { entries.to_vec() } else { Vec::new() };
                stream.say(response(&request.type_url, "1", resources)).await;
            }
        }
        stream
    }

    async fn until_state(&self, state: SourceState) {
        let waited = tokio::time::timeout(DEADLINE, self.port.board.until(|r| r.state == state)).await;
        assert!(waited.is_ok(), "{:?}", self.port.board.read());
    }

    async fn until_hosts(&self, hosts: &[&str]) {
        self.recorder.until(|told| told.0 == hosts).await;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.port.stop.cancel();
    }
}

fn response(type_url: &str, version: &str, resources: Vec<Any>) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: version.to_string(),
        nonce: format!("{type_url}-{version}"),
        type_url: type_url.to_string(),
        resources,
        ..DiscoveryResponse::default()
    }
}

/// The reply to a response.
async fn reply(stream: &mut Sotw, nonce: &str) -> DiscoveryRequest {
    loop {
        let request = stream.next().await.expect("a reply");
        if request.response_nonce == nonce {
            return request;
        }
    }
}

fn refusal(reply: &DiscoveryRequest) -> &str {
    reply.error_detail.as_ref().map_or("", |e| e.message.as_str())
}

#[tokio::test]
async fn a_resource_that_is_no_good_is_refused_by_name_and_the_stream_goes_on() {
    let mut stage = Stage::set(|_| {}).await;
    let mut stream = stage.answer(&[entry("a", "a1"), entry("b", "b1")]).await;
    stage.until_hosts(&["a1", "b1"]).await;
    stream.say(response(URL, "2", vec![bad("a"), entry("b", "b2")])).await;
    let said = reply(&mut stream, &format!("{URL}-2")).await;
    assert!(refusal(&said).contains("shop/a") && !refusal(&said).contains("shop/b"), "{said:?}");
    assert_eq!(said.version_info, "1");
    stage.until_hosts(&["a1", "b2"]).await;
    assert_eq!(stage.port.board.read().findings.refused[0].name, "a");
    stream.say(response(URL, "3", vec![entry("a", "a3"), entry("b", "b2")])).await;
    let said = reply(&mut stream, &format!("{URL}-3")).await;
    assert_eq!((refusal(&said), said.version_info.as_str()), ("", "3"));
    stage.until_hosts(&["a3", "b2"]).await;
    assert_eq!(stage.recorder.told().1, 0);
}

#[tokio::test]
async fn bytes_that_are_no_resource_are_refused_and_take_nothing_away() {
    let mut stage = Stage::set(|_| {}).await;
    let mut stream = stage.answer(&[entry("a", "a"), entry("b", "b")]).await;
    stage.until_hosts(&["a", "b"]).await;
    let junk = Any { type_url: "type.googleapis.com/istio.mcp.v1alpha1.Resource".into(), value: vec![0xff; 100] };
    stream.say(response(URL, "2", vec![entry("a", "a2"), junk])).await;
    let said = reply(&mut stream, &format!("{URL}-2")).await;
    assert!(refusal(&said).contains("does not decode"), "{said:?}");
    stage.until_hosts(&["a2", "b"]).await;
}

#[tokio::test]
async fn an_unrequested_type_is_refused_and_the_stream_goes_on() {
    let mut stage = Stage::set(|_| {}).await;
    let mut stream = stage.answer(&[entry("a", "a")]).await;
    stream.say(response("some.example/v1/Thing", "1", vec![entry("x", "x")])).await;
    let said = reply(&mut stream, "some.example/v1/Thing-1").await;
    assert!(refusal(&said).contains("not asked for"), "{said:?}");
    stream.say(response(URL, "2", vec![entry("a", "a2")])).await;
    stage.until_hosts(&["a2"]).await;
}

#[tokio::test]
async fn a_name_that_comes_twice_is_refused() {
    let mut stage = Stage::set(|_| {}).await;
    let mut stream = stage.answer(&[entry("a", "a1")]).await;
    stream.say(response(URL, "2", vec![entry("a", "a2"), entry("b", "b"), entry("a", "a3")])).await;
    let said = reply(&mut stream, &format!("{URL}-2")).await;
    assert!(refusal(&said).contains("shop/a: the name comes 2 times"), "{said:?}");
    stage.until_hosts(&["a1", "b"]).await;
}

#[tokio::test]
async fn a_message_that_is_too_long_costs_the_stream_and_nothing_else() {
    let mut stage = Stage::set(|s| s.max_message_bytes = 64 << 10).await;
    let stream = stage.answer(&[entry("a", "a1")]).await;
    stage.until_hosts(&["a1"]).await;
    stream.say(response(URL, "2", vec![entry("a", &"x".repeat(1 << 20))])).await;
    stage.until_state(SourceState::Stale).await;
    let error = stage.port.board.read().last_error;
    assert!(error.contains("message length too large"), "{error}");
    let _stream = stage.answer(&[entry("a", "a2")]).await;
    stage.until_state(SourceState::Synced).await;
    stage.until_hosts(&["a2"]).await;
    assert_eq!(stage.recorder.told().1, 0);
}

#[tokio::test]
async fn more_objects_than_are_allowed_are_refused() {
    let mut stage = Stage::set(|s| s.max_objects = 50).await;
    let many: Vec<Any> = (0..5000).map(|n| entry(&format!("e{n}"), "e.example")).collect();
    let mut stream = stage.answer(&many).await;
    let said = reply(&mut stream, &format!("{URL}-1")).await;
    assert!(refusal(&said).starts_with("4950 of 5000"), "{said:?}");
    assert!(refusal(&said).len() < 10_000);
    stage.recorder.until(|told| told.0.len() == 50).await;
    assert!(stage.port.board.read().findings.refused.len() <= 1000);
}

#[tokio::test]
async fn an_upstream_that_closes_at_once_is_asked_less_and_less_often() {
    let mut stage = Stage::set(|_| {}).await;
    let began = Instant::now();
    for _ in 0..6 {
        stage.upstream.accept().await.unwrap().fail(Status::unavailable("not now")).await;
    }
    // At least half of 20 + 40 + 80 + 160 + 320 ms.
    assert!(began.elapsed().as_millis() >= 310, "{:?}", began.elapsed());
    assert!(stage.port.board.read().last_error.contains("not now"));
    let _stream = stage.answer(&[entry("a", "a")]).await;
    stage.until_hosts(&["a"]).await;
    stage.until_state(SourceState::Synced).await;
}

/// Accepts a stream, answers ServiceEntries, and ends it.
async fn answer_half(stage: &mut Stage, entries: &[Any]) {
    let mut stream = stage.upstream.accept().await.unwrap();
    while stream.next().await.unwrap().type_url != URL {}
    stream.say(response(URL, "1", entries.to_vec())).await;
    reply(&mut stream, &format!("{URL}-1")).await;
}

#[tokio::test]
async fn an_upstream_that_ends_each_stream_after_its_first_answer_delivers_nothing() {
    let mut stage = Stage::set(|s| s.last_answer = Duration::from_millis(300)).await;
    let began = Instant::now();
    // Longer than the time that a living stream has for the other types.
    while began.elapsed() < Duration::from_secs(3) {
        answer_half(&mut stage, &[entry("a", "a")]).await;
    }
    assert!(stage.recorder.batches().is_empty() && stage.port.board.read().state == SourceState::Starting);
    let _stream = stage.answer(&[entry("a", "a"), entry("b", "b")]).await;
    stage.until_hosts(&["a", "b"]).await;
    stage.until_state(SourceState::Synced).await;
}

#[tokio::test]
async fn an_upstream_of_which_one_type_is_too_long_delivers_nothing() {
    let mut stage = Stage::set(|s| (s.max_message_bytes, s.last_answer) = (64 << 10, Duration::from_millis(300))).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let stream = stage.upstream.accept().await.unwrap();
        stream.say(response("networking.istio.io/v1/Gateway", "1", Vec::new())).await;
        stream.say(response(URL, "1", vec![entry("a", &"x".repeat(1 << 20))])).await;
    }
    let report = stage.port.board.read();
    assert!(stage.recorder.batches().is_empty() && report.state == SourceState::Starting);
    assert!(report.last_error.contains("message length too large"), "{}", report.last_error);
}

#[tokio::test]
async fn an_upstream_that_is_slow_is_waited_for_and_types_that_it_does_not_know_are_not() {
    let mut stage = Stage::set(|s| s.last_answer = Duration::from_secs(2)).await;
    let mut stream = stage.upstream.accept().await.unwrap();
    let known = ["core/v1/Service", "networking.istio.io/v1/Gateway", URL, "networking.istio.io/v1/Sidecar"];
    let mut began = Instant::now();
    for type_url in known {
        while stream.next().await.unwrap().type_url != type_url {}
        tokio::time::sleep(Duration::from_secs(1)).await;
        began = Instant::now();
        stream.say(response(type_url, "1", if type_url == URL { vec![entry("a", "a")] } else { Vec::new() })).await;
    }
    stage.until_hosts(&["a"]).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "the time begins with the last answer");
    stage.until_state(SourceState::Synced).await;
    let report = stage.port.board.read();
    assert!(report.last_error.contains("types are not answered"), "{}", report.last_error);
    assert!(report.unanswered.iter().any(|kind| kind.ends_with("/VirtualService")), "{:?}", report.unanswered);
    assert!(!report.unanswered.iter().any(|kind| kind.ends_with("/ServiceEntry")), "{:?}", report.unanswered);
}

#[tokio::test]
async fn an_upstream_that_comes_and_goes_takes_nothing_along() {
    let mut stage = Stage::set(|_| {}).await;
    for round in 0..4 {
        let stream = stage.answer(&[entry("a", &format!("a{round}")), entry("b", "b")]).await;
        stage.until_hosts(&[&format!("a{round}"), "b"]).await;
        drop(stream);
        stage.until_state(SourceState::Stale).await;
        // Once it closes before it has said anything.
        drop(stage.upstream.accept().await.unwrap());
    }
    assert_eq!(stage.recorder.told().1, 0);
}

#[tokio::test]
async fn an_empty_answer_deletes_nothing_until_it_is_confirmed() {
    let mut stage = Stage::set(|_| {}).await;
    let mut stream = stage.answer(&[entry("a", "a"), entry("b", "b")]).await;
    stage.until_hosts(&["a", "b"]).await;
    stream.say(response(URL, "2", Vec::new())).await;
    assert_eq!(refusal(&reply(&mut stream, &format!("{URL}-2")).await), "", "it is no fault of the protocol");
    stage.until_state(SourceState::Holding).await;
    assert_eq!(stage.port.board.read().held_deletions.len(), 2);
    drop(stream);
    let _stream = stage.answer(&[]).await;
    stage.until_state(SourceState::Holding).await;
    assert_eq!(stage.recorder.told().1, 0, "nor does an upstream that comes back with nothing");
    stage.port.confirm.notify_one();
    stage.recorder.until(|told| *told == (Vec::new(), 2)).await;
    stage.until_state(SourceState::Synced).await;
}

#[tokio::test]
async fn a_nonce_that_comes_again_is_answered_like_any_other_and_none_is_not() {
    let mut stage = Stage::set(|_| {}).await;
    let mut stream = stage.answer(&[entry("a", "a1")]).await;
    for (host, nonce) in [("a2", "old"), ("a3", "old"), ("a4", ""), ("a5", "new")] {
        stream.say(DiscoveryResponse { nonce: nonce.into(), ..response(URL, "2", vec![entry("a", host)]) }).await;
    }
    let mut replies = Vec::new();
    while replies.last().is_none_or(|nonce| nonce != "new") {
        let request = stream.next().await.unwrap();
        if request.type_url == URL && !request.response_nonce.starts_with(URL) {
            replies.push(request.response_nonce);
        }
    }
    assert_eq!(replies, ["old", "old", "new"]);
    stage.until_hosts(&["a5"]).await;
}

#[tokio::test]
async fn a_resync_sends_everything_again_also_while_the_upstream_is_away() {
    let mut stage = Stage::set(|_| {}).await;
    let stream = stage.answer(&[entry("a", "a"), entry("b", "b")]).await;
    stage.until_hosts(&["a", "b"]).await;
    drop(stream);
    stage.until_state(SourceState::Stale).await;
    let before = stage.recorder.batches().len();
    stage.port.resync.notify_one();
    stage.recorder.until(|told| told.0.len() == 2 && stage.recorder.batches().len() > before).await;
}
