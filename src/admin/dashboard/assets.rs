//! The files of the page, embedded. A browser keeps them and asks by their tags whether they changed.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, EntityTag, Header, IfNoneMatch},
    web,
};
use xxhash_rust::xxh3::xxh3_64;

/// The browser loads nothing from elsewhere, runs no script that is written in a page, and sends no form.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = include_str!("assets/index.html");

macro_rules! assets {
    ($($name:literal),+ $(,)?) => { &[$(($name, include_str!(concat!("assets/", $name)))),+] };
}

/// Files by name.
const ASSETS: &[(&str, &str)] = assets![
    "analysis.js",
    "app.js",
    "dom.js",
    "fleet.js",
    "graph.js",
    "icon.svg",
    "list.js",
    "notices.js",
    "object.js",
    "objects.js",
    "proxy.js",
    "pushes.js",
    "service.js",
    "services.js",
    "sources.js",
    "style.css",
    "worker.js",
];

pub(super) async fn page(request: HttpRequest) -> HttpResponse {
    file(&request, "index.html", PAGE)
}

pub(super) async fn asset(request: HttpRequest, name: web::Path<String>) -> HttpResponse {
    match ASSETS.iter().find(|(known, _)| *known == *name) {
        Some((name, content)) => file(&request, name, content),
        None => HttpResponse::NotFound().body("no such file of the dashboard\n"),
    }
}

fn file(request: &HttpRequest, name: &str, content: &'static str) -> HttpResponse {
    let tag = EntityTag::new_strong(format!("{:016x}", xxh3_64(content.as_bytes())));
    let known = match IfNoneMatch::parse(request) {
        Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(&tag)),
        _ => false,
    };
    let mut response = if known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response
        .content_type(content_type(name))
        .insert_header((header::ETAG, tag.to_string()))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::REFERRER_POLICY, "no-referrer"));
    if known { response.finish() } else { response.body(content) }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/html; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_only_files_that_are_embedded() {
        let all = ASSETS.iter().map(|(_, content)| *content).chain([PAGE]);
        let texts: Vec<&str> = all.collect();
        for text in &texts {
            for quoted in text.split('"').filter(|quoted| quoted.starts_with("/dashboard/assets/")) {
                let name = quoted.rsplit('/').next().unwrap_or_default();
                assert!(ASSETS.iter().any(|(known, _)| *known == name), "{quoted}");
            }
            for quoted in text.split('"').filter_map(|quoted| quoted.strip_prefix("./")) {
                assert!(ASSETS.iter().any(|(known, _)| *known == quoted), "{quoted}");
            }
            let elsewhere = text.split('"').find(|quoted| {
                let quoted = quoted.trim_start();
                (quoted.starts_with("http:") || quoted.starts_with("https:")) && !quoted.contains("www.w3.org/2000/svg")
            });
            assert_eq!(elsewhere, None, "nothing is loaded from elsewhere");
        }
        let size: usize = texts.iter().map(|text| text.len()).sum();
        assert!(size < 200_000, "{size} bytes");
    }
}
