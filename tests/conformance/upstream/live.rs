//! The same tests through a real API server: manifests are applied there, a running pilothouse writes the statuses back, and
//! routers are configured as from files that hold the same objects.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::ByteString;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use pilothouse::{
    discovery::{Composer, Resources},
    model::{Kind, Locality, Node, kind::KindClass},
    push::PushContext,
    settings::{KubeAccess, KubeSettings, LeaseSettings, Settings, SourceSettings},
};
use serde_json::{Value, json};

use super::{
    cases,
    cluster::{self, Plan},
    demands::{self, Seen},
    list,
    stage::{App, settings},
    text,
};
use crate::{
    admin::Admin,
    data::{self, Case, Verdict},
    generate,
    process::DEADLINE,
    server::Server,
    skipped::skipped,
};

/// Without the variable every so many-th test is played.
const EVERY: usize = 8;
const ALL: &str = "PILOTHOUSE_ALL_THROUGH_API_SERVER";

/// Plays the tests. What passes from files has to pass here.
pub fn run() {
    let Some(crds) = data::root().map(|root| root.join("crds/gateway-api-experimental")) else {
        return skipped("the recordings are not beside the repository");
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let filter = std::env::var("PILOTHOUSE_CASES").unwrap_or_default();
    let step = if !filter.is_empty() || std::env::var_os(ALL).is_some() { 1 } else { EVERY };
    let with_verdict = |case: Case| (demands::check(&case), case);
    let of_files = cases().into_iter().filter(|case| filter.split(',').any(|f| case.id.contains(f))).map(with_verdict);
    let asked: Vec<(Verdict, Case)> =
        of_files.filter(|(of_files, _)| !matches!(of_files, Verdict::NotYet(_))).collect();
    runtime.block_on(async {
        let Some(server) = Server::start(&[]).await else { return };
        let mut live = Live::start(server, &crds).await;
        let (mut passed, mut failed, mut worse) = (0, 0, Vec::new());
        for (of_files, case) in asked.into_iter().step_by(step) {
            let wrong = live.play(&case).await;
            match (wrong.is_empty(), of_files) {
                (true, _) => passed += 1,
                (false, Verdict::Failed(lines)) if lines.len() == wrong.len() => failed += 1,
                (false, _) => worse.push(format!("{}: {wrong:#?}", case.id)),
            }
        }
        println!(
            "conformance gateway-api-upstream through the API server: {passed} passed, {failed} failed as from files, {} \
             otherwise; all with {ALL}=1",
            worse.len()
        );
        assert!(worse.is_empty(), "{worse:#?}");
    });
}

/// A running server and a running pilothouse.
struct Live {
    admin: Admin,
    app: App,
    /// The objects that this test has applied to the server.
    applied: BTreeMap<String, Value>,
    plan: Plan,
    _server: Server,
}

impl Live {
    async fn start(server: Server, crds: &Path) -> Self {
        let admin = Admin::of(&server).await;
        let mut files: Vec<PathBuf> = fs::read_dir(crds).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        let definitions = files.iter().flat_map(|f| data::yaml(f)).filter(|d| d["kind"] == "CustomResourceDefinition");
        for definition in definitions {
            admin.apply(&definition).await;
        }
        let root = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
        admin.apply(&root).await;
        let app = App::start(live_settings(&server.kubeconfig));
        Self { admin, app, applied: BTreeMap::new(), plan: Plan::on_paper(), _server: server }
    }

    async fn play(&mut self, case: &Case) -> Vec<String> {
        let test = super::test(case);
        let mut manifests = super::manifests_of(case, &test);
        let (mut seen, mut wrong) = (None, Vec::new());
        for demand in list(&test["checks"]) {
            if manifests.before(demand) || seen.is_none() {
                match self.settle(manifests.documents()).await {
                    Ok(settled) => seen = Some(settled),
                    Err(why) => return vec![why],
                }
            }
            let complaint = seen.as_ref().and_then(|seen| seen.complaint(demand)).flatten();
            wrong.extend(complaint.map(|why| format!("{} ({}): {why}", text(&demand["check"]), text(&demand["case"]))));
        }
        wrong
    }

    /// Puts these manifests in the server and waits until their statuses stand there as well.
    async fn settle(&mut self, documents: Vec<Value>) -> Result<Seen, String> {
        let documents = cluster::complete(documents, &mut self.plan);
        let documents: Vec<Value> = documents.into_iter().filter(|d| d["kind"] != "Deployment").collect();
        self.make_be(&documents).await;
        let start = Instant::now();
        loop {
            let objects = self.read(&documents).await;
            let without_status: Vec<Value> = objects.iter().cloned().map(without_own_status).collect();
            let cold = PushContext::build(demands::inputs_of(&without_status));
            assert!(!cold.translation.statuses.is_empty(), "nothing was understood of {objects:#?}");
            let differs = self.differs(&objects, &cold);
            match differs {
                None => return Ok(Seen::of_objects(&objects)),
                Some(why) if start.elapsed() > DEADLINE => return Err(why),
                Some(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// The first difference from a cold run on these objects.
    fn differs(&self, objects: &[Value], cold: &PushContext) -> Option<String> {
        let written = Seen::of_objects(objects);
        for (key, wanted) in &cold.translation.statuses {
            let stands = written.status_of(key);
            if !holds(stands, wanted) {
                return Some(format!("the status of {key} is {stands} and not {wanted}"));
            }
        }
        let Some(published) = self.app.state.current() else { return Some("nothing is published".to_string()) };
        for gateway in objects.iter().filter(|o| o["kind"] == "Gateway") {
            let node = self.router(gateway);
            let of = |context: &PushContext| {
                rendered(&Composer::new(context, context.view_of(&node), None).all(&[]).unwrap())
            };
            let (live, cold) = (of(&published.context), of(cold));
            if let Some(other) = live.iter().zip(&cold).find(|(live, cold)| live != cold) {
                return Some(format!("the router of {} gets other resources: {other:#?}", gateway["metadata"]["name"]));
            }
            if live.len() != cold.len() {
                return Some(format!("{} resources and not {}", live.len(), cold.len()));
            }
        }
        None
    }

    fn router(&self, gateway: &Value) -> Node {
        let (namespace, name) = (text(&gateway["metadata"]["namespace"]), text(&gateway["metadata"]["name"]));
        let address = self.plan.known(&format!("gateway/{namespace}/{name}")).unwrap_or("10.0.0.1");
        let id = format!("router~{address}~{name}-istio-0.{namespace}~{namespace}.svc.cluster.local");
        let labels = json!({"gateway.networking.k8s.io/gateway-name": name});
        Node::from_parts(&id, json!({"LABELS": labels, "NAMESPACE": namespace}), Locality::default()).unwrap()
    }

    /// Applies new and changed objects, and deletes the absent ones. Namespaces stay: emptying one takes its time.
    async fn make_be(&mut self, documents: &[Value]) {
        let wanted: BTreeMap<String, Value> = documents.iter().map(|d| (key(d), d.clone())).collect();
        let gone = |(key, object): &(&String, &Value)| !wanted.contains_key(*key) && object["kind"] != "Namespace";
        let gone: Vec<Value> = self.applied.iter().filter(gone).map(|(_, object)| object.clone()).collect();
        for object in gone {
            let name = text(&object["metadata"]["name"]);
            self.admin.api(&object).delete(name, &DeleteParams::default()).await.unwrap();
            self.applied.remove(&key(&object));
        }
        // Namespaces come first.
        let order = |document: &&Value| document["kind"] != "Namespace";
        let mut changed: Vec<&Value> = documents.iter().filter(|d| self.applied.get(&key(d)) != Some(d)).collect();
        changed.sort_by_key(order);
        for document in changed {
            apply(&self.admin, document).await;
            self.applied.insert(key(document), document.clone());
        }
    }

    async fn read(&self, documents: &[Value]) -> Vec<Value> {
        let read = documents.iter().map(|document| async {
            let found = self.admin.api(document).get(text(&document["metadata"]["name"])).await.unwrap();
            let mut object = serde_json::to_value(found).unwrap();
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
            object
        });
        futures::future::join_all(read).await
    }
}

/// All resources, as JSON.
fn rendered(resources: &Resources) -> Vec<Value> {
    let lists = [
        generate::json(&resources.clusters),
        generate::json(&resources.endpoints),
        generate::json(&resources.listeners),
        generate::json(&resources.routes),
    ];
    lists.concat()
}

fn live_settings(kubeconfig: &Path) -> Settings {
    let access = KubeAccess::Kubeconfig { path: kubeconfig.to_path_buf(), context: None };
    let lease = LeaseSettings { look: Duration::from_millis(200), ..LeaseSettings::default() };
    let kubernetes = KubeSettings {
        write_status: true,
        lease,
        deletion_hold: Duration::ZERO,
        first_pause: Duration::from_millis(20),
        ..KubeSettings::new(access)
    };
    let sources = SourceSettings { kubernetes: Some(kubernetes), ..SourceSettings::default() };
    Settings { sources, ..settings() }
}

fn key(document: &Value) -> String {
    let meta = &document["metadata"];
    format!("{} {} {}", text(&document["kind"]), text(&meta["namespace"]), text(&meta["name"]))
}

/// Applies an object and, where the manifest has one, its status. A kind whose CRD has just come is waited for.
async fn apply(admin: &Admin, document: &Value) {
    let mut object = document.clone();
    let status = object.as_object_mut().unwrap().remove("status");
    for key in ["generation", "creationTimestamp"] {
        object["metadata"].as_object_mut().unwrap().remove(key);
    }
    if let Some(Value::Object(given)) = object.as_object_mut().unwrap().remove("stringData") {
        let encoded = |(name, value): (String, Value)| (name, json!(ByteString(text(&value).as_bytes().to_vec())));
        object["data"] = Value::Object(given.into_iter().map(encoded).collect());
    }
    let (api, name): (Api<DynamicObject>, _) = (admin.api(&object), text(&document["metadata"]["name"]).to_string());
    let parameters = PatchParams::apply("suite").force();
    let start = Instant::now();
    while let Err(error) = api.patch(&name, &parameters, &Patch::Apply(&object)).await {
        assert!(start.elapsed() < DEADLINE, "{object}: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if let Some(status) = status {
        let parameters = PatchParams { field_manager: Some("kubelet".to_string()), ..PatchParams::default() };
        api.patch_status(&name, &parameters, &Patch::Merge(json!({"status": status}))).await.unwrap();
    }
}

/// A cold run knows no status that was written before.
fn without_own_status(mut object: Value) -> Value {
    let kind = Kind::parse(text(&object["apiVersion"]), text(&object["kind"]));
    if let Some(fields) = object.as_object_mut().filter(|_| kind.is_some_and(|k| k.class() == KindClass::GatewayApi)) {
        fields.remove("status");
    }
    object
}

/// Everything that is wanted stands there; an API server fills in more.
fn holds(stands: &Value, wanted: &Value) -> bool {
    match (stands, wanted) {
        (Value::Object(stands), Value::Object(wanted)) => {
            wanted.iter().all(|(k, v)| holds(stands.get(k).unwrap_or(&Value::Null), v))
        }
        (Value::Array(stands), Value::Array(wanted)) => {
            // Conditions are told apart by their type, in whatever order they stand.
            let of = |(index, wanted): (usize, &Value)| match wanted["type"].as_str() {
                Some(name) => stands.iter().find(|s| s["type"] == name),
                None => stands.get(index),
            };
            stands.len() == wanted.len()
                && wanted.iter().enumerate().all(|(i, w)| of((i, w)).is_some_and(|s| holds(s, w)))
        }
        // An empty list need not be written.
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        _ => stands == wanted,
    }
}
