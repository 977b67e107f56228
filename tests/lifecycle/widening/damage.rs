//! Random damage to a document: lost fields, odd values, wrong names, lists without elements.

use serde_json::{Value, json};

use super::Random;

/// The document with one to three faults.
pub fn damaged(document: &Value, random: &mut Random) -> Value {
    let mut damaged = document.clone();
    for _ in 0..=random.below(3) {
        let mut places = Vec::new();
        places_in(&damaged, &mut String::new(), &mut places);
        if !places.is_empty() {
            let place = places[random.below(places.len())].clone();
            damage(&mut damaged, &place, random);
        }
    }
    damaged
}

/// The pointers of all values below the document.
fn places_in(value: &Value, at: &mut String, places: &mut Vec<String>) {
    let mut visit = |key: &str, value: &Value| {
        let length = at.len();
        at.push('/');
        at.push_str(&key.replace('~', "~0").replace('/', "~1"));
        places.push(at.clone());
        places_in(value, at, places);
        at.truncate(length);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| visit(key, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| visit(&i.to_string(), value)),
        _ => {}
    }
}

fn damage(document: &mut Value, place: &str, random: &mut Random) {
    let (parent, key) = place.rsplit_once('/').unwrap();
    match (document.pointer_mut(parent).unwrap(), random.below(4)) {
        (Value::Object(map), 0) => drop(map.remove(key)),
        (Value::Object(map), 1) => {
            let value = map.remove(key).unwrap_or_default();
            map.insert(misspelt(key, random), value);
        }
        (Value::Array(list), 0) => drop(list.remove(key.parse().unwrap())),
        (Value::Array(list), 1) => list.push(odd(random)),
        (parent, _) => {
            let value = match parent {
                Value::Object(map) => map.get_mut(key),
                Value::Array(list) => list.get_mut(key.parse::<usize>().unwrap()),
                _ => None,
            };
            *value.unwrap() = odd(random);
        }
    }
}

/// Another name, which may be that of another field.
fn misspelt(key: &str, random: &mut Random) -> String {
    match random.below(4) {
        0 => format!("{key}s"),
        1 => key[..key.len() - 1].to_string(),
        2 => match key.strip_prefix("not") {
            Some(rest) if !rest.is_empty() => format!("{}{}", rest[..1].to_lowercase(), &rest[1..]),
            _ => format!("not{}{}", key[..1].to_uppercase(), &key[1..]),
        },
        _ => random.of(&["from", "to", "when", "rules", "action", "source", "operation", "paths", "hosts"]).to_string(),
    }
}

fn odd(random: &mut Random) -> Value {
    let texts = [
        "",
        " ",
        "*",
        "**",
        "a*b",
        "*a*",
        "/a/*/b",
        "{*}",
        "/{*}",
        "/{**}/a",
        "/{*",
        "*/*",
        "10.0.0/8",
        "10.0.0.0/33",
        "::/0",
        "999.1.1.1",
        "0",
        "70000",
        "-1",
        "ALLOW",
        "DENY",
        "AUDIT",
        "CUSTOM",
        "deny",
        "a/b/c",
        "\u{e4}",
        ".*",
        "spiffe://cluster.local/ns/shop/sa/web",
    ];
    match random.below(8) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!([json!(null)]),
        4 => json!(random.below(5)),
        5 => json!([random.of(&texts)]),
        _ => json!(random.of(&texts)),
    }
}
