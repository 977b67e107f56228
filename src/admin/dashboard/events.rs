//! `/dashboard/events`: notices of changes as server-sent events. A notice says which topics changed; the page asks for what it
//! shows of them.

use std::{convert::Infallible, time::Duration};

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web,
};
use bytes::Bytes;
use futures::stream;

use super::changes::{MOST, Subscription, subscribe};
use crate::admin::{AdminState, access::Viewer, memory::Notice};

/// The longest silence: a reader that is gone is noticed by it.
const SILENCE: Duration = Duration::from_secs(15);

/// The stream.
pub(super) async fn events(viewer: web::ReqData<Viewer>, state: web::Data<AdminState>) -> HttpResponse {
    if viewer.limit().is_some() {
        return HttpResponse::Forbidden().body("the dashboard is for the root namespace only\n");
    }
    let Some(subscription) = subscribe(&state) else {
        let text = format!("{MOST} pages are open already\n");
        return HttpResponse::build(StatusCode::SERVICE_UNAVAILABLE).body(text);
    };
    let events = stream::unfold((subscription, true), |(subscription, first)| next(subscription, first));
    HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(events)
}

async fn next(
    mut subscription: Subscription,
    first: bool,
) -> Option<(Result<Bytes, Infallible>, (Subscription, bool))> {
    if first {
        let notice = *subscription.notices.borrow_and_update();
        return Some((Ok(event(&notice)), (subscription, false)));
    }
    let text = match tokio::time::timeout(SILENCE, subscription.notices.changed()).await {
        Err(_) => Bytes::from_static(b":\n\n"),
        Ok(Err(_)) => return None,
        Ok(Ok(())) => {
            let notice = *subscription.notices.borrow_and_update();
            if notice.closing {
                return None;
            }
            event(&notice)
        }
    };
    Some((Ok(text), (subscription, false)))
}

fn event(notice: &Notice) -> Bytes {
    format!("data: {}\n\n", serde_json::to_string(notice).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_json() {
        let text = event(&Notice { v: 2, fleet: 1, ..Notice::default() });
        assert_eq!(text, r#"data: {"v":2,"fleet":1,"config":0,"sources":0,"closing":false}"#.to_string() + "\n\n");
    }
}
