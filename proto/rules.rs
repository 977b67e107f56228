//! The table of the rules that Envoy's .proto files set for their fields (`validate.rules` of protoc-gen-validate), written
//! by build.rs as Rust: a static for each message that has rules, or leads to one that has some.
//!
//! A rule of a kind that is not known here fails the build, so that none is dropped in silence. `SPECIAL` names what Envoy
//! demands beyond its rules; `src/generate/check` knows what these names mean.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt::Write,
};

use prost::Message;

/// Fields (or, without one, messages) that Envoy checks by code of its own.
const SPECIAL: &[(&str, &str, &str)] = &[
    ("envoy.config.core.v3.CidrRange", "address_prefix", "IpAddress"),
    ("envoy.config.core.v3.HeaderValueOption", "header", "HeaderToAdd"),
    ("envoy.config.core.v3.Pipe", "path", "SocketPath"),
    ("envoy.config.route.v3.DirectResponseAction", "body", "DirectBody"),
    ("envoy.config.route.v3.Route", "request_headers_to_remove", "HeaderToRemove"),
    ("envoy.config.route.v3.Route", "response_headers_to_remove", "HeaderToRemove"),
    ("envoy.config.route.v3.WeightedCluster", "", "Weights"),
    ("envoy.config.route.v3.WeightedCluster.ClusterWeight", "request_headers_to_remove", "HeaderToRemove"),
    ("envoy.config.route.v3.WeightedCluster.ClusterWeight", "response_headers_to_remove", "HeaderToRemove"),
    ("envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext", "verify_certificate_hash", "Sha256"),
    ("envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext", "verify_certificate_spki", "Spki"),
    ("envoy.type.matcher.v3.RegexMatcher", "regex", "Regex"),
];

/// Most fields that a message of the table may have: what has been seen of one is kept on the stack.
const MOST_FIELDS: usize = 96;

macro_rules! descriptor {
    ($name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* }) => {
        #[derive(Clone, PartialEq, Message)]
        pub struct $name { $($(#[$meta])* pub $field: $type,)* }
    };
}
descriptor!(Set { #[prost(message, repeated, tag = "1")] file: Vec<File>, });
descriptor!(File {
    #[prost(string, tag = "2")] package: String,
    #[prost(message, repeated, tag = "4")] messages: Vec<Type>,
    #[prost(message, repeated, tag = "5")] enums: Vec<Enum>,
});
descriptor!(Type {
    #[prost(string, tag = "1")] name: String,
    #[prost(message, repeated, tag = "2")] fields: Vec<Field>,
    #[prost(message, repeated, tag = "3")] messages: Vec<Type>,
    #[prost(message, repeated, tag = "4")] enums: Vec<Enum>,
    #[prost(message, optional, tag = "7")] options: Option<TypeOptions>,
    #[prost(message, repeated, tag = "8")] oneofs: Vec<Oneof>,
});
descriptor!(TypeOptions {
    #[prost(bool, tag = "7")]
    map_entry: bool,
    #[prost(bool, tag = "1071")]
    disabled: bool,
    #[prost(bool, tag = "1072")]
    ignored: bool,
});
descriptor!(Oneof {
    #[prost(string, tag = "1")] name: String,
    #[prost(message, optional, tag = "2")] options: Option<OneofOptions>,
});
descriptor!(OneofOptions {
    #[prost(bool, tag = "1071")]
    required: bool,
});
descriptor!(Enum {
    #[prost(string, tag = "1")] name: String,
    #[prost(message, repeated, tag = "2")] values: Vec<EnumValue>,
});
descriptor!(EnumValue {
    #[prost(int64, tag = "2")]
    number: i64,
});
descriptor!(Field {
    #[prost(string, tag = "1")] name: String,
    #[prost(uint32, tag = "3")] number: u32,
    #[prost(int32, tag = "4")] label: i32,
    #[prost(int32, tag = "5")] kind: i32,
    #[prost(string, tag = "6")] type_name: String,
    #[prost(message, optional, tag = "8")] options: Option<FieldOptions>,
    #[prost(uint32, optional, tag = "9")] oneof: Option<u32>,
    #[prost(bool, tag = "17")] proto3_optional: bool,
});
descriptor!(FieldOptions { #[prost(message, optional, tag = "1071")] rules: Option<Rules>, });
descriptor!(Rules {
    #[prost(message, optional, tag = "1")] float: Option<Floats>,
    #[prost(message, optional, tag = "2")] double: Option<Doubles>,
    #[prost(message, optional, tag = "3")] int32: Option<Integers>,
    #[prost(message, optional, tag = "4")] int64: Option<Integers>,
    #[prost(message, optional, tag = "5")] uint32: Option<Integers>,
    #[prost(message, optional, tag = "6")] uint64: Option<Integers>,
    #[prost(message, optional, tag = "13")] bool: Option<Bools>,
    #[prost(message, optional, tag = "14")] string: Option<Texts>,
    #[prost(message, optional, tag = "15")] bytes: Option<Texts>,
    #[prost(message, optional, tag = "16")] enums: Option<Enums>,
    #[prost(message, optional, tag = "17")] message: Option<Presence>,
    #[prost(message, optional, tag = "18")] repeated: Option<Lists>,
    #[prost(message, optional, tag = "19")] map: Option<Maps>,
    #[prost(message, optional, tag = "20")] any: Option<Anys>,
    #[prost(message, optional, tag = "21")] duration: Option<Durations>,
});
descriptor!(Integers {
    #[prost(int64, optional, tag = "1")] exact: Option<i64>,
    #[prost(int64, optional, tag = "2")] lt: Option<i64>,
    #[prost(int64, optional, tag = "3")] lte: Option<i64>,
    #[prost(int64, optional, tag = "4")] gt: Option<i64>,
    #[prost(int64, optional, tag = "5")] gte: Option<i64>,
    #[prost(int64, repeated, packed = "false", tag = "6")] within: Vec<i64>,
    #[prost(int64, repeated, packed = "false", tag = "7")] without: Vec<i64>,
    #[prost(bool, tag = "8")] ignore_empty: bool,
});
descriptor!(Floats {
    #[prost(float, optional, tag = "2")] lt: Option<f32>,
    #[prost(float, optional, tag = "3")] lte: Option<f32>,
    #[prost(float, optional, tag = "4")] gt: Option<f32>,
    #[prost(float, optional, tag = "5")] gte: Option<f32>,
});
descriptor!(Doubles {
    #[prost(double, optional, tag = "2")] lt: Option<f64>,
    #[prost(double, optional, tag = "3")] lte: Option<f64>,
    #[prost(double, optional, tag = "4")] gt: Option<f64>,
    #[prost(double, optional, tag = "5")] gte: Option<f64>,
});
descriptor!(Bools { #[prost(bool, optional, tag = "1")] exact: Option<bool>, });
descriptor!(Texts {
    #[prost(uint64, optional, tag = "2")] min_len: Option<u64>,
    #[prost(uint64, optional, tag = "3")] max_len: Option<u64>,
    #[prost(uint64, optional, tag = "4")] min_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "5")] max_bytes: Option<u64>,
    #[prost(string, optional, tag = "6")] pattern: Option<String>,
    #[prost(string, optional, tag = "7")] prefix: Option<String>,
    #[prost(string, optional, tag = "8")] suffix: Option<String>,
    #[prost(string, repeated, tag = "10")] within: Vec<String>,
    #[prost(int32, tag = "24")] well_known: i32,
    #[prost(bool, optional, tag = "25")] strict: Option<bool>,
    #[prost(bool, tag = "26")] ignore_empty: bool,
});
descriptor!(Enums {
    #[prost(int64, optional, tag = "1")] exact: Option<i64>,
    #[prost(bool, tag = "2")] defined_only: bool,
    #[prost(int64, repeated, packed = "false", tag = "3")] within: Vec<i64>,
    #[prost(int64, repeated, packed = "false", tag = "4")] without: Vec<i64>,
});
descriptor!(Presence {
    #[prost(bool, tag = "1")]
    skip: bool,
    #[prost(bool, tag = "2")]
    required: bool,
});
descriptor!(Lists {
    #[prost(uint64, tag = "1")] min: u64,
    #[prost(uint64, optional, tag = "2")] max: Option<u64>,
    #[prost(message, optional, boxed, tag = "4")] items: Option<Box<Rules>>,
    #[prost(bool, tag = "5")] ignore_empty: bool,
});
descriptor!(Maps {
    #[prost(uint64, tag = "1")] min: u64,
    #[prost(uint64, optional, tag = "2")] max: Option<u64>,
    #[prost(message, optional, boxed, tag = "4")] keys: Option<Box<Rules>>,
    #[prost(message, optional, boxed, tag = "5")] values: Option<Box<Rules>>,
});
descriptor!(Anys {
    #[prost(bool, tag = "1")]
    required: bool,
});
descriptor!(Durations {
    #[prost(bool, tag = "1")] required: bool,
    #[prost(message, optional, tag = "3")] lt: Option<prost_types::Duration>,
    #[prost(message, optional, tag = "4")] lte: Option<prost_types::Duration>,
    #[prost(message, optional, tag = "5")] gt: Option<prost_types::Duration>,
    #[prost(message, optional, tag = "6")] gte: Option<prost_types::Duration>,
});

const REPEATED: i32 = 3;
const TEXT_MATCHES_ANYTHING: [&str; 2] = ["^$|", "*$"];

/// Names of all types, as fields refer to them.
#[derive(Default)]
struct Names<'a> {
    types: BTreeMap<String, &'a Type>,
    enums: BTreeMap<String, &'a Enum>,
}

impl<'a> Names<'a> {
    fn add(&mut self, scope: &str, types: &'a [Type], enums: &'a [Enum]) {
        self.enums.extend(enums.iter().map(|e| (format!("{scope}.{}", e.name), e)));
        for inner in types {
            let name = format!("{scope}.{}", inner.name);
            self.add(&name, &inner.messages, &inner.enums);
            self.types.insert(name, inner);
        }
    }
}

/// A field as the table has it.
struct Entry {
    name: String,
    number: u32,
    kind: String,
    /// The message that it leads to.
    target: Option<String>,
    rules: Vec<String>,
    repeated: bool,
    /// How many there have to be, and may be.
    count: (u64, Option<u64>),
    /// Position of the oneof that has to be set, from 1.
    oneof: usize,
}

impl Entry {
    fn checks(&self) -> bool {
        !self.rules.is_empty() || self.count != (0, None) || self.oneof != 0 || self.kind == "Kind::Any"
    }
}

/// The table as Rust.
pub fn table(files: &[File]) -> Result<String, Box<dyn Error>> {
    let mut names = Names::default();
    for file in files {
        names.add(&format!(".{}", file.package), &file.messages, &file.enums);
    }
    let ours = |name: &&String| name.starts_with(".envoy.") || name.starts_with(".xds.");
    let mut entries: BTreeMap<&String, Vec<Entry>> = BTreeMap::new();
    for name in names.types.keys().filter(ours) {
        entries.insert(name, fields(&names, name, None)?);
    }
    // The entries of a map obey the rules of the map.
    for (_, of) in names.types.iter().filter(|(name, _)| ours(name)) {
        for field in &of.fields {
            let entry = names.types.get(&field.type_name).filter(|t| t.options.as_ref().is_some_and(|o| o.map_entry));
            if let (Some(_), Some(map)) = (entry, rules_of(field).and_then(|r| r.map.as_ref())) {
                let (entry, _) = names.types.get_key_value(&field.type_name).ok_or("an entry")?;
                entries.insert(entry, fields(&names, entry, Some(map))?);
            }
        }
    }
    let mut leads: BTreeSet<&String> = BTreeSet::new();
    loop {
        let more: Vec<_> = entries
            .iter()
            .filter(|(name, _)| !leads.contains(*name))
            .filter(|(name, list)| {
                let special = SPECIAL.iter().any(|(m, f, _)| f.is_empty() && name.get(1..) == Some(*m));
                special || list.iter().any(|e| e.checks() || e.target.as_ref().is_some_and(|t| leads.contains(t)))
            })
            .map(|(name, _)| *name)
            .collect();
        if more.is_empty() {
            break;
        }
        leads.extend(more);
    }
    write(&names, &entries, &leads)
}

fn rules_of(field: &Field) -> Option<&Rules> {
    field.options.as_ref().and_then(|o| o.rules.as_ref())
}

fn fields(names: &Names, name: &str, map: Option<&Maps>) -> Result<Vec<Entry>, Box<dyn Error>> {
    let of = names.types.get(name).ok_or_else(|| format!("{name} is not known"))?;
    let plain = of.options.as_ref().is_some_and(|o| o.disabled || o.ignored);
    let mut required: Vec<(u32, usize)> = Vec::new();
    for (index, oneof) in of.oneofs.iter().enumerate() {
        if oneof.options.as_ref().is_some_and(|o| o.required) && !plain {
            required.push((index as u32, required.len() + 1));
        }
    }
    let mut out = Vec::new();
    for field in &of.fields {
        let own = match (field.number, map) {
            (1, Some(map)) => map.keys.as_deref(),
            (2, Some(map)) => map.values.as_deref(),
            _ => rules_of(field).filter(|_| !plain),
        };
        let mut entry = entry(names, field, own).map_err(|e| format!("{name}.{}: {e}", field.name))?;
        let required = required.iter().find(|(index, _)| field.oneof == Some(*index) && !field.proto3_optional);
        entry.oneof = required.map_or(0, |(_, number)| *number);
        let special = SPECIAL.iter().filter(|(m, f, _)| name.get(1..) == Some(*m) && *f == field.name);
        entry.rules.extend(special.map(|(_, _, special)| format!("Rule::Special(Special::{special})")));
        out.push(entry);
    }
    Ok(out)
}

fn entry(names: &Names, field: &Field, rules: Option<&Rules>) -> Result<Entry, Box<dyn Error>> {
    let mut count = (0, None);
    let mut of_value = rules.cloned().unwrap_or_default();
    let repeated = field.label == REPEATED;
    if repeated {
        of_value = Rules::default();
        if let Some(map) = rules.and_then(|r| r.map.as_ref()) {
            count = (map.min, map.max);
        }
        if let Some(list) = rules.and_then(|r| r.repeated.as_ref()) {
            count = (if list.ignore_empty { 0 } else { list.min }, list.max);
            of_value = list.items.as_deref().cloned().unwrap_or_default();
        }
    }
    let (mut texts, absent_fails) = texts(names, field, &of_value)?;
    let required = of_value.message.as_ref().is_some_and(|m| m.required)
        || of_value.any.as_ref().is_some_and(|a| a.required)
        || of_value.duration.as_ref().is_some_and(|d| d.required);
    let scalar = !matches!(field.kind, 10 | 11);
    // What stands in a oneof is looked at only where it is given.
    if !repeated && field.oneof.is_none() && (required || (scalar && absent_fails)) {
        count.0 = 1;
    }
    let skipped = of_value.message.as_ref().is_some_and(|m| m.skip);
    let (kind, target) = kind(names, field)?;
    if kind == "Kind::Duration" && !texts.iter().any(|rule| rule.starts_with("Rule::AtLeast")) {
        // Envoy's code takes no negative duration anywhere.
        texts.push("Rule::AtLeast(0)".to_string());
    }
    let target = target.filter(|_| !skipped);
    Ok(Entry { name: field.name.clone(), number: field.number, kind, target, rules: texts, repeated, count, oneof: 0 })
}

/// How the value of a field is read, and the message that it is.
fn kind(names: &Names, field: &Field) -> Result<(String, Option<String>), Box<dyn Error>> {
    let simple = |kind: &str| Ok((format!("Kind::{kind}"), None));
    match field.kind {
        1 => simple("Double"),
        2 => simple("Float"),
        3 | 5 | 8 | 14 => simple("Signed"),
        4 | 13 => simple("Unsigned"),
        9 | 12 => simple("Text"),
        11 => match field.type_name.as_str() {
            ".google.protobuf.Any" => simple("Any"),
            ".google.protobuf.Duration" => simple("Duration"),
            ".google.protobuf.DoubleValue" => simple("WrappedDouble"),
            ".google.protobuf.FloatValue" => simple("WrappedFloat"),
            ".google.protobuf.StringValue" | ".google.protobuf.BytesValue" => simple("WrappedText"),
            ".google.protobuf.Int32Value" | ".google.protobuf.Int64Value" | ".google.protobuf.BoolValue" => {
                simple("WrappedSigned")
            }
            ".google.protobuf.UInt32Value" | ".google.protobuf.UInt64Value" => simple("WrappedUnsigned"),
            other => {
                let (name, _) = names.types.get_key_value(other).ok_or_else(|| format!("{other} is not known"))?;
                Ok(("Kind::Message".to_string(), Some(name.clone())))
            }
        },
        6 | 7 | 10 | 15..=18 => simple("Other"),
        other => Err(format!("a field of type {other}").into()),
    }
}

/// The rules of one value as Rust, and whether a value that is absent breaks one.
fn texts(names: &Names, field: &Field, rules: &Rules) -> Result<(Vec<String>, bool), Box<dyn Error>> {
    let mut out = Vec::new();
    let mut absent = false;
    for integers in [&rules.int32, &rules.int64, &rules.uint32, &rules.uint64].into_iter().flatten() {
        let low = integers.gte.or(integers.gt.map(|n| n + 1)).or(integers.exact);
        let high = integers.lte.or(integers.lt.map(|n| n - 1)).or(integers.exact);
        let first = out.len();
        out.extend(low.map(|n| format!("Rule::AtLeast({n})")));
        out.extend(high.map(|n| format!("Rule::AtMost({n})")));
        if low.zip(high).is_some_and(|(low, high)| low > high) {
            return Err("integers outside of a range".into());
        }
        numbers(&mut out, &integers.within, &integers.without);
        if integers.ignore_empty {
            let inner = out.split_off(first).join(", ");
            out.push(format!("Rule::UnlessEmpty(&[{inner}])"));
            continue;
        }
        absent |= low.is_some_and(|n| n > 0) || high.is_some_and(|n| n < 0) || integers.without.contains(&0);
        absent |= !integers.within.is_empty() && !integers.within.contains(&0);
    }
    let double = |f: &Floats| Doubles {
        lt: f.lt.map(f64::from),
        lte: f.lte.map(f64::from),
        gt: f.gt.map(f64::from),
        gte: f.gte.map(f64::from),
    };
    for d in rules.double.clone().into_iter().chain(rules.float.as_ref().map(double)) {
        for (limit, rule) in [(d.gte, "RealAtLeast"), (d.gt, "RealAbove"), (d.lte, "RealAtMost"), (d.lt, "RealBelow")] {
            out.extend(limit.map(|n| format!("Rule::{rule}({n:?})")));
        }
        absent |= d.gte.is_some_and(|n| n > 0.0) || d.gt.is_some_and(|n| n >= 0.0);
    }
    if let Some(exact) = rules.bool.as_ref().and_then(|b| b.exact) {
        numbers(&mut out, &[i64::from(exact)], &[]);
        absent |= exact;
    }
    if let Some(enums) = &rules.enums {
        let mut within = enums.within.clone();
        within.extend(enums.exact);
        if enums.defined_only && within.is_empty() {
            let of = names.enums.get(&field.type_name).ok_or("an enum that is not known")?;
            within.extend(of.values.iter().map(|v| v.number));
        }
        numbers(&mut out, &within, &enums.without);
        absent |= enums.without.contains(&0) || (!within.is_empty() && !within.contains(&0));
    }
    for text in rules.string.iter().chain(&rules.bytes) {
        let first = out.len();
        absent |= !text.ignore_empty && text_rules(&mut out, text, rules.bytes.is_some())?;
        if text.ignore_empty {
            text_rules(&mut out, text, rules.bytes.is_some())?;
            let inner = out.split_off(first).join(", ");
            out.push(format!("Rule::UnlessEmpty(&[{inner}])"));
        }
    }
    if let Some(duration) = &rules.duration {
        let nanos = |d: &prost_types::Duration| i128::from(d.seconds) * 1_000_000_000 + i128::from(d.nanos);
        out.extend(duration.gte.as_ref().map(|d| format!("Rule::AtLeast({})", nanos(d))));
        out.extend(duration.gt.as_ref().map(|d| format!("Rule::AtLeast({})", nanos(d) + 1)));
        out.extend(duration.lte.as_ref().map(|d| format!("Rule::AtMost({})", nanos(d))));
        out.extend(duration.lt.as_ref().map(|d| format!("Rule::AtMost({})", nanos(d) - 1)));
    }
    Ok((out, absent))
}

fn numbers(out: &mut Vec<String>, within: &[i64], without: &[i64]) {
    if !within.is_empty() {
        out.push(format!("Rule::OneOf(&{within:?})"));
    }
    if !without.is_empty() {
        out.push(format!("Rule::NoneOf(&{without:?})"));
    }
}

/// Adds the rules of a text; whether the empty one breaks one of them.
fn text_rules(out: &mut Vec<String>, text: &Texts, bytes: bool) -> Result<bool, Box<dyn Error>> {
    let (min, max) = if bytes { ("MinBytes", "MaxBytes") } else { ("MinChars", "MaxChars") };
    out.extend(text.min_len.map(|n| format!("Rule::{min}({n})")));
    out.extend(text.max_len.map(|n| format!("Rule::{max}({n})")));
    out.extend(text.min_bytes.map(|n| format!("Rule::MinBytes({n})")));
    out.extend(text.max_bytes.map(|n| format!("Rule::MaxBytes({n})")));
    out.extend(text.pattern.as_ref().map(|p| format!("Rule::Pattern({p:?})")));
    out.extend(text.prefix.as_ref().map(|p| format!("Rule::Prefix({p:?})")));
    out.extend(text.suffix.as_ref().map(|p| format!("Rule::Suffix({p:?})")));
    if !text.within.is_empty() {
        out.push(format!("Rule::OneText(&{:?})", text.within));
    }
    let strict = text.strict.unwrap_or(true);
    match text.well_known {
        0 => {}
        1 => out.push(format!("Rule::HeaderName {{ strict: {strict} }}")),
        2 => out.push(format!("Rule::HeaderValue {{ strict: {strict} }}")),
        other => return Err(format!("a well-known form of number {other}").into()),
    }
    let takes_empty = |p: &String| TEXT_MATCHES_ANYTHING.iter().any(|s| p.starts_with(s) || p.ends_with(s));
    Ok(text.min_len.or(text.min_bytes).is_some_and(|n| n > 0)
        || text.pattern.as_ref().is_some_and(|p| !takes_empty(p))
        || [&text.prefix, &text.suffix].into_iter().flatten().any(|p| !p.is_empty())
        || (!text.within.is_empty() && !text.within.iter().any(String::is_empty)))
}

fn write(
    names: &Names,
    entries: &BTreeMap<&String, Vec<Entry>>,
    leads: &BTreeSet<&String>,
) -> Result<String, Box<dyn Error>> {
    let index: BTreeMap<&String, usize> = leads.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    let mut out = String::new();
    for (name, i) in &index {
        let list = &entries[*name];
        let mut kept: Vec<&Entry> =
            list.iter().filter(|e| e.checks() || e.target.as_ref().is_some_and(|t| leads.contains(t))).collect();
        kept.sort_by_key(|e| e.number);
        if kept.len() > MOST_FIELDS {
            return Err(format!("{name} has {} fields with rules", kept.len()).into());
        }
        let plain = name.get(1..).unwrap_or_default();
        let special = SPECIAL.iter().find(|(m, f, _)| f.is_empty() && plain == *m);
        let special = special.map_or("None".to_string(), |(_, _, s)| format!("Some(Special::{s})"));
        let options = names.types[*name].options.as_ref();
        let plain_message = options.is_some_and(|o| o.disabled || o.ignored);
        let oneofs = names.types[*name].oneofs.iter().filter(|o| o.options.as_ref().is_some_and(|o| o.required));
        let oneofs: Vec<_> = oneofs.filter(|_| !plain_message).map(|o| &o.name).collect();
        let required: Vec<usize> = kept.iter().enumerate().filter(|(_, e)| e.count.0 > 0).map(|(at, _)| at).collect();
        writeln!(
            out,
            "static M{i}: Message = Message {{ special: {special}, oneofs: &{oneofs:?}, required: &{required:?}, fields: &["
        )?;
        for e in kept {
            let kind = match e.target.as_ref().and_then(|t| index.get(t)) {
                Some(target) => format!("Kind::Message(&M{target})"),
                None if e.kind == "Kind::Message" => "Kind::Opaque".to_string(),
                None => e.kind.clone(),
            };
            let (name, number, rules, oneof) = (&e.name, e.number, e.rules.join(", "), e.oneof);
            let most = if e.repeated { u64::from(u32::MAX) } else { 1 };
            let (min, max) = (e.count.0, e.count.1.unwrap_or(most));
            writeln!(
                out,
                "    Field {{ number: {number}, name: {name:?}, kind: {kind}, rules: &[{rules}], min: {min}, max: {max}, oneof: {oneof} }},"
            )?;
        }
        writeln!(out, "] }};")?;
    }
    writeln!(out, "/// Every message that has rules, by the length of its name and the name.")?;
    writeln!(out, "pub(super) static MESSAGES: &[(&str, &Message)] = &[")?;
    let mut by_length: Vec<_> = index.iter().map(|(name, i)| (name.get(1..).unwrap_or_default(), i)).collect();
    by_length.sort_unstable_by_key(|(name, _)| (name.len(), *name));
    for (name, i) in by_length {
        writeln!(out, "    ({name:?}, &M{i}),")?;
    }
    writeln!(out, "];")?;
    Ok(out)
}
