//! The ways in which editors save.

use std::{fs, time::Instant};

use pilothouse::settings::SourceSettings;

use super::{Stage, entry};

#[tokio::test]
async fn the_save_sequences_of_editors_end_in_the_saved_text_and_delete_nothing() {
    let stage = Stage::set(&entry("a", "v0.example")).await;
    let path = stage.root().join("a.yaml");
    let saves: [(&str, Box<dyn Fn(&str)>); 4] = [
        ("in place", Box::new(|text| fs::write(&path, text).unwrap())),
        (
            "beside, then renamed",
            Box::new(|text| {
                fs::write(path.with_extension("yaml~new"), text).unwrap();
                fs::rename(path.with_extension("yaml~new"), &path).unwrap();
            }),
        ),
        (
            "renamed to a backup, then written",
            Box::new(|text| {
                fs::rename(&path, path.with_extension("yaml~")).unwrap();
                fs::write(&path, text).unwrap();
                fs::remove_file(path.with_extension("yaml~")).unwrap();
            }),
        ),
        (
            "removed, then written",
            Box::new(|text| {
                fs::remove_file(&path).unwrap();
                fs::write(&path, text).unwrap();
            }),
        ),
    ];
    // A pause longer than the settle time in the middle of a save looks like a deletion and is one: such a save does not count.
    let mut told = [0; 4];
    for round in 0.. {
        let Some(which) = (0..4).map(|n| (round + n) % 4).find(|n| told[*n] < 5) else { return };
        let (host, (name, save)) = (format!("v{}.example", round + 1), &saves[which]);
        let (deleted, began) = (stage.recorder.told().1, Instant::now());
        save(&entry("a", &host));
        let at_once = began.elapsed() < SourceSettings::default().settle;
        stage.until(|told| told.0 == [host.clone()]).await;
        if at_once {
            assert_eq!(stage.recorder.told().1, deleted, "{name}");
            told[which] += 1;
        }
    }
}
