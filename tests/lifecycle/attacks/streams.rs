//! Streams that ask for more than there is, or for what nobody serves: each ends with a reason, or is passed over.

use std::net::SocketAddr;

use futures::FutureExt;
use pilothouse::{
    discovery::debug,
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        },
        wkt,
    },
    testing::{AdsClient, ClientError},
    xds::ResourceType::{Cluster, Endpoint},
};
use tokio::task::JoinSet;
use tonic::{Code, client::Grpc, transport::Endpoint as Server};
use tonic_prost::ProstCodec;

use super::{Attacked, end_of, gateway, request, size, stream, take_all};

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// The end of a stream that begins with this request.
async fn refused(address: SocketAddr, first: DiscoveryRequest) -> Code {
    let mut stream = stream(address).await;
    // A server that refuses at once may close the stream before it is asked anything.
    let _ = stream.send(first).await;
    end_of(&mut stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_names_and_too_long_ones_are_refused() {
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    let rows = [
        ("a million names", request(Endpoint, numbers(1_000_000), "")),
        ("150,000 names in 1 MB", request(Endpoint, numbers(150_000), "")),
        ("names of 10 kB", request(Endpoint, vec!["x".repeat(10_000); 50], "")),
        ("a name of 5 MB", request(Endpoint, vec!["x".repeat(5 << 20)], "")),
    ];
    for (name, first) in rows {
        let asking = async move {
            for _ in 0..size(2, 20) {
                assert_eq!(refused(address, first.clone()).await, Code::ResourceExhausted, "{name}");
            }
        };
        attacked.under(name, asking).await;
    }
    let growing = async move {
        for _ in 0..size(1, 10) {
            let client = gateway(address).await;
            let mut stream = client.delta(None).await.unwrap();
            let mut lists = 0;
            let ended = loop {
                let from = lists * 1_000_000;
                let asked = DeltaDiscoveryRequest {
                    type_url: Endpoint.url().into(),
                    resource_names_subscribe: (0..45_000).map(|n| format!("{}", from + n)).collect(),
                    ..DeltaDiscoveryRequest::default()
                };
                let _ = stream.send(asked).await;
                lists += 1;
                match stream.next().await {
                    Ok(response) => drop(stream.accept(&response).await),
                    Err(ClientError::Silence) => {}
                    Err(ClientError::Status(status)) => break status.code(),
                    Err(other) => panic!("{other}"),
                }
                assert!(lists < 20, "a stream holds {} names", lists * 45_000);
            };
            assert_eq!(ended, Code::ResourceExhausted);
        }
    };
    attacked.under("names over many requests", growing).await;
    let versions = async move {
        for _ in 0..size(1, 20) {
            let client = gateway(address).await;
            let mut stream = client.delta(None).await.unwrap();
            let asked = DeltaDiscoveryRequest {
                type_url: Cluster.url().into(),
                resource_names_subscribe: vec!["*".into()],
                initial_resource_versions: (0..300_000).map(|n| (format!("{n:x}"), String::new())).collect(),
                ..DeltaDiscoveryRequest::default()
            };
            let _ = stream.send(asked).await;
            match stream.next().await {
                Err(ClientError::Status(status)) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
                other => panic!("300,000 initial versions: {other:?}"),
            }
        }
    };
    attacked.under("300,000 initial versions", versions).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_too_large_are_refused() {
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    let id = |number: usize| format!("sidecar~10.0.0.1~a-{number}.test~test.svc.cluster.local");
    let large = async move {
        let mut held = JoinSet::new();
        for _ in 0..size(1, 8) {
            let (client, mut refused) = (gateway(address).await, 0);
            for number in 0..120 {
                let node = Node { id: id(number), cluster: "x".repeat(193_000), ..Node::default() };
                let mut stream = client.with_node(node).sotw(None).await.unwrap();
                stream.subscribe(Cluster, &[], "").await.unwrap();
                match stream.next().await {
                    Ok(_) => drop(held.spawn(take_all(stream))),
                    Err(ClientError::Status(status)) if status.code() == Code::ResourceExhausted => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            assert!((30..60).contains(&refused), "a connection has room for 16 MB of nodes: {refused} are refused");
        }
        held
    };
    attacked.under("nodes of 193 kB on 120 streams", large).await;
    let value = || wkt::Value { kind: Some(wkt::value::Kind::BoolValue(true)) };
    let deep = (0..90).fold(value(), |inner, _| wkt::Value {
        kind: Some(wkt::value::Kind::StructValue(wkt::Struct { fields: [("a".to_string(), inner)].into() })),
    });
    let rows = [
        ("an id of 1 MB", "x".repeat(1 << 20), wkt::Struct::default(), Code::ResourceExhausted),
        ("no id", String::new(), wkt::Struct::default(), Code::InvalidArgument),
        ("an id of another form", "sidecar~no-ip~a.b~d".into(), wkt::Struct::default(), Code::InvalidArgument),
        (
            "5,000 values",
            id(0),
            wkt::Struct { fields: (0..5000).map(|n| (n.to_string(), value())).collect() },
            Code::InvalidArgument,
        ),
        ("90 deep", id(0), wkt::Struct { fields: [("a".to_string(), deep)].into() }, Code::InvalidArgument),
    ];
    let bad = async move {
        for (name, id, metadata, code) in rows {
            for _ in 0..size(5, 500) {
                let node = Node { id: id.clone(), metadata: Some(metadata.clone()), ..Node::default() };
                let mut stream = gateway(address).await.with_node(node).sotw(None).await.unwrap();
                let _ = stream.subscribe(Cluster, &[], "").await;
                assert_eq!(end_of(&mut stream).await, code, "{name}");
            }
        }
    };
    attacked.under("nodes of no use", bad).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_and_types_that_nobody_serves_are_refused() {
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    let calling = async move {
        let channel = Server::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        for number in 0..size(100, 5000) {
            let path = match number % 5 {
                0 => "/nobody.Service/Method".to_string(),
                1 => "/envoy.service.discovery.v3.AggregatedDiscoveryService/Nothing".to_string(),
                2 => format!("/envoy.service.discovery.v{number}.AggregatedDiscoveryService/StreamAggregatedResources"),
                3 => format!("/{}", "x".repeat(5000)),
                _ => "/../../etc/passwd".to_string(),
            };
            let mut grpc = Grpc::new(channel.clone());
            grpc.ready().await.unwrap();
            let codec = ProstCodec::<DiscoveryRequest, DiscoveryRequest>::default();
            let request = tonic::Request::new(tokio_stream::iter([DiscoveryRequest::default()]));
            let answered = grpc.streaming(request, path.parse().unwrap(), codec).await;
            let status = match answered {
                Err(status) => status,
                Ok(response) => response.into_inner().message().await.expect_err(&path),
            };
            assert_eq!(status.code(), Code::Unimplemented, "{path}: {status}");
        }
    };
    attacked.under("unknown services", calling).await;
    let asking = async move {
        let mut stream = stream(address).await;
        for number in 0..size(500, 10_000) {
            let type_url = format!("type.googleapis.com/{number}");
            stream.send(DiscoveryRequest { type_url, ..DiscoveryRequest::default() }).await.expect("an open stream");
        }
        stream.subscribe(Cluster, &[], "").await.unwrap();
        // The requests of a stream are read at a rate.
        let answer = loop {
            match stream.next().await {
                Err(ClientError::Silence) => {}
                other => break other.expect("an answer to what is served"),
            }
        };
        assert_eq!(answer.type_url, Cluster.url());
        stream
    };
    attacked.under("unknown types", asking).await;
}

/// Pages run beside the work, one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_pages_over_xds_without_end() {
    let mut attacked = Attacked::plain().await;
    let many: String =
        (0..size(300, 5000)).map(|n| crate::stage::entry(&format!("x{n}"), &format!("x{n}.far"))).collect();
    attacked.write("many.yaml", many.replace("spec:\n", "spec:\n  exportTo: ['~']\n"));
    let mut attackers = Vec::new();
    for number in 0..size(8, 100) {
        let id = format!("sidecar~10.0.0.7~ctl-{number}.istio-system~istio-system.svc.cluster.local");
        let node = Node { id, ..Node::default() };
        let mut stream =
            AdsClient::connect(attacked.address, "10.0.0.7").await.unwrap().with_node(node).sotw(None).await.unwrap();
        let asking = async move {
            loop {
                for page in ["configz", "registryz", "endpointShardz", "syncz"] {
                    let type_url = debug::PAGE.to_string();
                    let resource_names = vec![page.to_string()];
                    let asked = DiscoveryRequest { type_url, resource_names, ..DiscoveryRequest::default() };
                    stream.send(asked).await.expect("an open stream");
                    loop {
                        match stream.next().await {
                            Ok(_) => break,
                            Err(ClientError::Silence) => {}
                            Err(other) => panic!("{page}: {other}"),
                        }
                    }
                }
            }
        };
        attackers.push(asking.boxed());
    }
    attacked.besieged("debug pages over xDS", size(4, 50), attackers).await;
}
