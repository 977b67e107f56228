//! A run, written down before it happens: settings, and bursts of steps. Each step gives the new content of a place, so that
//! any of them can be left out and the rest still makes sense.

use std::{collections::BTreeMap, time::Duration};

use pilothouse::{model::Kind, xds::ResourceType};
use serde_json::Value;

use crate::{
    objects::{self, Object},
    proxy::Move,
    random::Random,
    traffic,
};

/// Bursts of a run.
pub const BURSTS: usize = 8;
/// Edits of a burst.
pub const EDITS: usize = 25;
/// Objects before the first burst.
const FIRST: usize = 40;
/// More objects than this are not kept at once.
const MOST: usize = 75;
/// From this seed on the upstream is restarted too, the process more often, and pauses grow to a second.
pub const ROUGH: u64 = 1_000_000;
/// Files of a folder.
const FILES: [&str; 4] = ["a.yaml", "b.yaml", "c.yaml", "sub/d.yaml"];
/// Types that clients refuse or ask for again.
const ASKED: [ResourceType; 5] =
    [ResourceType::Cluster, ResourceType::Endpoint, ResourceType::Listener, ResourceType::Route, ResourceType::Secret];

/// The settings of the process.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// `PILOT_DEBOUNCE_AFTER`; the adaptive rule where there is none.
    pub quiet: Option<Duration>,
    /// `PILOT_ENABLE_EDS_DEBOUNCE`.
    pub endpoints_debounced: bool,
    /// `PILOT_ENABLE_IP_AUTOALLOCATE`.
    pub addresses_from_status: bool,
    /// An API server is a source too.
    pub api_server: bool,
    /// Another control plane is a source too; and whether it is read by differences.
    pub upstream: Option<bool>,
}

/// The way of writing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Beside it, then renamed into place.
    Renamed,
    /// Truncated and written in one go.
    InPlace,
    /// Truncated, written in two parts with a pause of so many milliseconds.
    Slowly(u64),
    /// Broken for so many milliseconds, then written.
    Broken(u64),
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Step {
    /// A file of a folder comes to hold these objects; it is gone when there are none.
    File { folder: usize, file: &'static str, objects: Vec<Object>, how: How },
    /// An object of the API server, or its end.
    Kube { key: String, object: Option<Object> },
    /// The mesh settings.
    Mesh(Value),
    /// A client does something.
    Client(usize, Move),
    /// The process ends, and another one takes its place.
    Restart,
    /// The upstream ends, and another process takes its place and its address.
    RestartUpstream,
    /// Left out.
    Nothing,
}

/// A step with the pause before it and a text for reports.
#[derive(Debug, Clone)]
pub struct Timed {
    pub pause: Duration,
    pub text: String,
    pub step: Step,
}

/// A whole run.
#[derive(Debug, Clone)]
pub struct Trace {
    pub seed: u64,
    pub setup: Setup,
    /// Before anything is started.
    pub first: Vec<Timed>,
    pub bursts: Vec<Vec<Timed>>,
}

/// Where objects are: the folder of upstream is the third one.
pub const FOLDERS: usize = 3;
/// The folder that the upstream serves.
pub const UPSTREAM: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    File(usize, &'static str),
    Kube,
}

impl Place {
    /// Which source it belongs to.
    const fn source(self) -> usize {
        match self {
            Self::File(folder, _) => folder,
            Self::Kube => FOLDERS,
        }
    }
}

struct World {
    random: Random,
    setup: Setup,
    objects: BTreeMap<(Place, String), Object>,
    clients: usize,
    steps: Vec<Timed>,
}

impl Trace {
    /// The run of a seed, for so many clients.
    pub fn of(seed: u64, clients: usize) -> Self {
        let mut random = Random::new(seed);
        let setup = Self::setup(&mut random);
        let mut trace = Self::with(seed, random, setup, clients);
        if seed >= ROUGH {
            trace.roughen();
        }
        trace
    }

    /// The run of a seed with files only.
    pub fn of_files(seed: u64, clients: usize) -> Self {
        let mut random = Random::new(seed);
        let setup = Setup { api_server: false, upstream: None, ..Self::setup(&mut random) };
        Self::with(seed, random, setup, clients)
    }

    /// The run of a seed with an API server, whose objects are most of all.
    pub fn of_cluster(seed: u64, clients: usize) -> Self {
        let mut random = Random::new(seed);
        let setup = Setup { api_server: true, upstream: None, ..Self::setup(&mut random) };
        Self::with(seed, random, setup, clients)
    }

    /// Adds restarts of the upstream and of the process, and longer pauses.
    fn roughen(&mut self) {
        let mut random = Random::new(!self.seed);
        for burst in &mut self.bursts {
            for timed in burst.iter_mut() {
                if random.chance(4) {
                    timed.pause = Duration::from_millis(300 + random.below(700) as u64);
                }
            }
            let mut add = |percent, text: &str, step: Step| {
                if random.chance(percent) {
                    let (at, pause) = (random.below(burst.len()), random.pause(300));
                    burst.insert(at, Timed { pause, text: text.to_string(), step });
                }
            };
            add(40, "restart", Step::Restart);
            if self.setup.upstream.is_some() {
                add(60, "restart of the upstream", Step::RestartUpstream);
            }
        }
    }

    fn setup(random: &mut Random) -> Setup {
        let quiets = [None, None, Some(1), Some(10), Some(90), Some(300), Some(1000)];
        Setup {
            quiet: random.of(&quiets).map(Duration::from_millis),
            endpoints_debounced: random.chance(60),
            addresses_from_status: random.chance(80),
            api_server: random.chance(40),
            upstream: random.chance(40).then_some(random.chance(50)),
        }
    }

    fn with(seed: u64, random: Random, setup: Setup, clients: usize) -> Self {
        let mut world = World { random, setup, objects: BTreeMap::new(), clients, steps: Vec::new() };
        world.mesh();
        while world.objects.len() < FIRST {
            world.create();
        }
        let first = std::mem::take(&mut world.steps);
        let bursts = (0..BURSTS).map(|_| world.burst()).collect();
        Self { seed, setup, first, bursts }
    }
}

impl World {
    fn burst(&mut self) -> Vec<Timed> {
        for _ in 0..EDITS {
            self.edit();
        }
        std::mem::take(&mut self.steps)
    }

    fn edit(&mut self) {
        let full = self.objects.len() > MOST;
        match self.random.below(100) {
            0..35 if !full => self.create(),
            0..60 => self.change(),
            60..80 => self.delete(),
            80..86 => self.move_one(),
            86..88 => self.rename(),
            88..91 => self.mesh(),
            91..99 => self.client(),
            _ if self.random.chance(30) => self.push("restart".to_string(), Step::Restart),
            _ => self.change(),
        }
    }

    fn push(&mut self, text: String, step: Step) {
        let pause = self.random.pause(300);
        let pause = if self.random.chance(25) { Duration::ZERO } else { pause };
        self.steps.push(Timed { pause, text, step });
    }

    fn any_place(&mut self) -> Place {
        let file = *self.random.of(&FILES);
        match self.random.below(100) {
            0..35 if self.setup.api_server => Place::Kube,
            35..55 if self.setup.upstream.is_some() => Place::File(UPSTREAM, file),
            55..70 => Place::File(1, file),
            _ => Place::File(0, file),
        }
    }

    fn any_object(&mut self) -> Option<(Place, String)> {
        let at = self.random.below(self.objects.len());
        self.objects.keys().nth(at).cloned()
    }

    fn create(&mut self) {
        let (place, object) = (self.any_place(), objects::any(&mut self.random));
        let key = object.key();
        // One source holds an object once, but for a few that stand in two files.
        let there = self.objects.keys().find(|(p, k)| p.source() == place.source() && *k == key).map(|(p, _)| *p);
        let place = if self.random.chance(5) { place } else { there.unwrap_or(place) };
        self.objects.insert((place, key.clone()), object);
        self.write(place, format!("put {key}"), &key);
    }

    fn change(&mut self) {
        let Some((place, key)) = self.any_object() else { return self.create() };
        let object = objects::changed(&mut self.random, &self.objects[&(place, key.clone())]);
        self.objects.insert((place, key.clone()), object);
        self.write(place, format!("change {key}"), &key);
    }

    fn delete(&mut self) {
        let Some((place, key)) = self.any_object() else { return self.create() };
        self.objects.remove(&(place, key.clone()));
        self.write(place, format!("delete {key}"), &key);
    }

    fn move_one(&mut self) {
        let Some((place, key)) = self.any_object() else { return self.create() };
        let to = self.any_place();
        let Some(object) = self.objects.remove(&(place, key.clone())) else { return };
        self.objects.insert((to, key.clone()), object);
        let steps = [(place, "away"), (to, "here")];
        let reversed = self.random.chance(50);
        for at in 0..2 {
            let (place, text) = steps[if reversed { 1 - at } else { at }];
            self.write(place, format!("move {key} {text}"), &key);
        }
    }

    /// A file takes another's name.
    fn rename(&mut self) {
        let folder = self.random.below(if self.setup.upstream.is_some() { FOLDERS } else { 2 });
        let (from, to) = (*self.random.of(&FILES), *self.random.of(&FILES));
        if from == to {
            return self.change();
        }
        let keys: Vec<String> =
            self.objects.keys().filter(|(p, _)| *p == Place::File(folder, from)).map(|(_, k)| k.clone()).collect();
        self.objects.retain(|(place, _), _| *place != Place::File(folder, to));
        for key in keys {
            if let Some(object) = self.objects.remove(&(Place::File(folder, from), key.clone())) {
                self.objects.insert((Place::File(folder, to), key), object);
            }
        }
        self.write(Place::File(folder, from), format!("{from} takes the place of {to}"), "");
        self.write(Place::File(folder, to), format!("{to} was {from}"), "");
    }

    fn mesh(&mut self) {
        let mesh = traffic::mesh(&mut self.random);
        self.push(format!("mesh {mesh}"), Step::Mesh(mesh));
    }

    fn client(&mut self) {
        let at = self.random.below(self.clients);
        let what = match self.random.below(10) {
            0..3 => Move::Refuse(*self.random.of(&ASKED)),
            3..7 => Move::Again(*self.random.of(&ASKED), self.random.below(100)),
            _ => Move::Reconnect,
        };
        self.push(format!("client {at}: {what:?}"), Step::Client(at, what));
    }

    /// Gives a place its content.
    fn write(&mut self, place: Place, text: String, key: &str) {
        match place {
            Place::Kube => {
                let object = self.objects.get(&(place, key.to_string())).cloned();
                self.push(format!("API server: {text}"), Step::Kube { key: key.to_string(), object });
            }
            Place::File(folder, file) => {
                let of_file = |((p, _), object): (&(Place, String), &Object)| (*p == place).then(|| object.clone());
                let objects = self.objects.iter().filter_map(of_file).collect();
                let how = match self.random.below(10) {
                    0..5 => How::Renamed,
                    5..8 => How::InPlace,
                    8 => How::Slowly(1 + self.random.number() % 60),
                    _ => How::Broken(1 + self.random.number() % 60),
                };
                let text = format!("folder {folder}, {file} ({how:?}): {text}");
                self.push(text, Step::File { folder, file, objects, how });
            }
        }
    }
}

/// The kind of a key, and its namespace and name.
pub fn place_of(key: &str) -> (String, String) {
    let mut parts = key.splitn(3, '/');
    let (kind, namespace, name) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (kind, group) = kind.and_then(|k| k.split_once('.')).unwrap_or_default();
    let found = Kind::ALL.iter().find(|k| k.as_str() == kind && k.group() == group);
    let plural = found.map_or("", |k| k.plural());
    let resource = if group.is_empty() { plural.to_string() } else { format!("{group}/{plural}") };
    (resource, format!("{namespace}/{name}"))
}
