//! A folder that is removed and brought back.

use std::fs;

use pilothouse::sources::SourceState;

use super::{Stage, entries, entry};

#[tokio::test]
async fn a_folder_that_is_removed_and_brought_back_keeps_its_objects_meanwhile() {
    let stage = Stage::set(&entries(20)).await;
    fs::remove_dir_all(stage.root()).unwrap();
    stage.until_state(SourceState::Stale).await;
    assert_eq!(stage.recorder.told().0.len(), 20);
    fs::create_dir(stage.root()).unwrap();
    fs::write(stage.root().join("a.yaml"), entries(20) + &entry("new", "new.example")).unwrap();
    stage.until(|told| told.0.len() == 21).await;
    stage.until_state(SourceState::Synced).await;
    assert_eq!(stage.recorder.told().1, 0);
}
