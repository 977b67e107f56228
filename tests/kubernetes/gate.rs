//! Role-based authorization in front of the API server of the tests, which permits everything: roles and bindings
//! are read from the server as they were applied, and each request is permitted or refused as in Kubernetes.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::AbortHandle};

use crate::admin::{Admin, documents};

/// Group, resource and verb.
pub type Triple = (String, String, String);

const GROUP: &str = "rbac.authorization.k8s.io";

/// The action of a request, in the terms of RBAC rules.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Action {
    group: String,
    /// With its subresource.
    resource: String,
    verb: &'static str,
    namespace: String,
    name: String,
}

/// A rule of a subject with its namespace; `None` for all namespaces.
type Grant = (Option<String>, Value);

struct State {
    client: Client,
    /// By `namespace:name` of a service account.
    grants: Mutex<Vec<(String, Grant)>>,
    used: Mutex<BTreeMap<Triple, usize>>,
    denied: Mutex<Vec<String>>,
    connections: Mutex<Vec<AbortHandle>>,
}

/// The manifest that grants the process its rights.
pub fn manifest() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/kubernetes/rbac.yaml");
    documents(&fs::read_to_string(path).unwrap())
}

/// Lets a server know roles and bindings, and applies the manifest to it as `kubectl` does.
pub async fn install(admin: &Admin) {
    for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"] {
        admin.apply(&definition(kind)).await;
    }
    for object in manifest() {
        admin.apply_strictly(&object).await;
    }
}

/// The authorizing server. It ends with this.
pub struct Gate {
    url: String,
    state: Arc<State>,
    task: AbortHandle,
}

impl Gate {
    /// Starts it with the current roles and bindings of the server.
    pub async fn start(admin: &Admin) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            client: admin.client().clone(),
            grants: Mutex::new(grants(admin).await),
            used: Mutex::default(),
            denied: Mutex::default(),
            connections: Mutex::default(),
        });
        let shared = state.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (state, all) = (shared.clone(), shared.clone());
                let service = service_fn(move |request| {
                    let state = state.clone();
                    async move { Ok::<_, Infallible>(state.answer(request).await) }
                });
                let task = tokio::spawn(async move {
                    drop(http1::Builder::new().serve_connection(TokioIo::new(socket), service).await)
                });
                all.connections.lock().unwrap().push(task.abort_handle());
            }
        });
        Self { url, state, task: accepting.abort_handle() }
    }

    /// Applies the current roles and bindings of the server, also to open connections: their requests end.
    pub async fn read_again(&self, admin: &Admin) {
        *self.state.grants.lock().unwrap() = grants(admin).await;
        self.state.connections.lock().unwrap().drain(..).for_each(|connection| connection.abort());
    }

    /// A kubeconfig with this token, in this folder.
    pub fn kubeconfig(&self, dir: &Path, token: &str) -> PathBuf {
        let path = dir.join(format!("kubeconfig-{}", token.replace(':', "-")));
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": token}}]});
        fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    /// The permitted requests.
    pub fn used(&self) -> BTreeSet<Triple> {
        self.state.used.lock().unwrap().keys().cloned().collect()
    }

    /// The number of permitted requests of this kind.
    pub fn times(&self, group: &str, resource: &str, verb: &str) -> usize {
        let kind = (group.to_string(), resource.to_string(), verb.to_string());
        self.state.used.lock().unwrap().get(&kind).copied().unwrap_or_default()
    }

    /// The refused requests.
    pub fn denied(&self) -> Vec<String> {
        self.state.denied.lock().unwrap().clone()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let subject = subject(request.headers());
        match (action(request.method(), request.uri()), subject) {
            (_, None) => refusal(StatusCode::UNAUTHORIZED, "Unauthorized", "no token"),
            // Discovery needs no right.
            (None, Some(_)) => self.forward(request).await,
            (Some(action), Some(subject)) if self.allows(&subject, &action) => {
                let used = (action.group, action.resource, action.verb.to_string());
                *self.used.lock().unwrap().entry(used).or_default() += 1;
                self.forward(request).await
            }
            (Some(action), Some(subject)) => {
                self.denied.lock().unwrap().push(format!("{subject}: {action:?}"));
                refusal(
                    StatusCode::FORBIDDEN,
                    "Forbidden",
                    &format!("{subject} cannot {} {}", action.verb, action.resource),
                )
            }
        }
    }

    fn allows(&self, subject: &str, action: &Action) -> bool {
        let here = |namespace: &Option<String>| namespace.as_ref().is_none_or(|n| *n == action.namespace);
        let grants = self.grants.lock().unwrap();
        let mut of_subject = grants.iter().filter(|(who, _)| who == subject);
        of_subject.any(|(_, (namespace, rule))| here(namespace) && covers(rule, action))
    }

    async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        // Its own client sets the credentials and the address.
        parts.headers.remove(header::AUTHORIZATION);
        parts.headers.remove(header::HOST);
        let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
            return refusal(StatusCode::BAD_REQUEST, "BadRequest", "half a request");
        };
        match self.client.send(Request::from_parts(parts, Body::from(body.to_vec()))).await {
            Ok(response) => response,
            Err(error) => refusal(StatusCode::BAD_GATEWAY, "BadGateway", &error.to_string()),
        }
    }
}

fn refusal(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code.as_u16()});
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
    response
}

/// The service account of a token of the test server (`sa:NAMESPACE:NAME`).
fn subject(headers: &HeaderMap) -> Option<String> {
    let token = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?;
    token.strip_prefix("sa:").map(str::to_string)
}

/// The action of a request; `None` where it is about no resource.
fn action(method: &Method, uri: &http::Uri) -> Option<Action> {
    let mut parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let group = match *parts.first()? {
        "api" if parts.len() > 2 => parts.drain(..2).next().map(|_| ""),
        "apis" if parts.len() > 3 => parts.drain(..3).nth(1),
        _ => None,
    }?;
    let mut namespace = String::new();
    if parts[0] == "namespaces" && parts.len() > 2 {
        namespace = parts[1].to_string();
        parts.drain(..2);
    }
    let resource = parts.get(2).map_or(parts[0].to_string(), |sub| format!("{}/{sub}", parts[0]));
    let name = parts.get(1).unwrap_or(&"").to_string();
    let watches = uri.query().unwrap_or_default().split('&').any(|q| matches!(q, "watch=true" | "watch=1" | "watch"));
    let verb = match (method, name.is_empty()) {
        (&Method::GET, false) => "get",
        (&Method::GET, true) if watches => "watch",
        (&Method::GET, true) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, false) => "delete",
        (&Method::DELETE, true) => "deletecollection",
        _ => "unknown",
    };
    Some(Action { group: group.to_string(), resource, verb, namespace, name })
}

fn covers(rule: &Value, action: &Action) -> bool {
    let names = |key: &str, wanted: &str| rule[key].as_array().into_iter().flatten().any(|v| v == wanted || v == "*");
    let named = rule["resourceNames"].as_array().is_none_or(|names| names.iter().any(|n| *n == *action.name));
    names("verbs", action.verb) && names("apiGroups", &action.group) && names("resources", &action.resource) && named
}

/// A schema of lists of strings under these names.
fn lists(names: &[&str]) -> Value {
    let list = json!({"type": "array", "items": {"type": "string"}});
    names.iter().map(|name| ((*name).to_string(), list.clone())).collect::<serde_json::Map<_, _>>().into()
}

/// The definition of a kind of roles or bindings, with the fields that it has in Kubernetes.
pub fn definition(kind: &str) -> Value {
    let properties = if kind.ends_with("Binding") {
        let text = json!({"type": "string"});
        let reference = json!({"apiGroup": text, "kind": text, "name": text});
        let mut subject = reference.clone();
        subject["namespace"] = text;
        json!({"roleRef": {"type": "object", "required": ["apiGroup", "kind", "name"], "properties": reference},
            "subjects": {"type": "array", "items": {"type": "object", "required": ["kind", "name"], "properties": subject}}})
    } else {
        let properties = lists(&["apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs"]);
        json!({"rules": {"type": "array", "items": {"type": "object", "required": ["verbs"], "properties": properties}}})
    };
    let (singular, scope) = (kind.to_lowercase(), if kind.starts_with("Cluster") { "Cluster" } else { "Namespaced" });
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{GROUP}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": GROUP, "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}]}})
}

/// The grants of all subjects, from the bindings of the server.
async fn grants(admin: &Admin) -> Vec<(String, Grant)> {
    let all = async |kind: &str| {
        let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind});
        let list = admin.api(&object).list(&Default::default()).await.unwrap();
        let of_kind = |object| {
            let mut object = serde_json::to_value(object).unwrap();
            object["kind"] = kind.into();
            object
        };
        list.items.into_iter().map(of_kind).collect::<Vec<Value>>()
    };
    let mut roles = all("Role").await;
    roles.extend(all("ClusterRole").await);
    let mut grants = Vec::new();
    for binding in all("RoleBinding").await.into_iter().chain(all("ClusterRoleBinding").await) {
        let namespace = binding["metadata"]["namespace"].as_str();
        let reference = &binding["roleRef"];
        let is_meant = |role: &&Value| {
            let same_place = role["kind"] == "ClusterRole" || role["metadata"]["namespace"].as_str() == namespace;
            role["kind"] == reference["kind"] && role["metadata"]["name"] == reference["name"] && same_place
        };
        let role = roles.iter().find(is_meant).expect("a binding names a role that there is");
        for subject in binding["subjects"].as_array().unwrap().iter().filter(|s| s["kind"] == "ServiceAccount") {
            let text = |name: &str| subject[name].as_str().unwrap_or_default();
            let who = format!("{}:{}", text("namespace"), text("name"));
            let rules = role["rules"].as_array().unwrap().iter();
            grants.extend(rules.map(|rule| (who.clone(), (namespace.map(str::to_string), rule.clone()))));
        }
    }
    grants
}
