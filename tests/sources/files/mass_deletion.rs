//! A folder whose files are all deleted, and a folder that loses one object.

use std::fs;

use pilothouse::sources::SourceState;

use super::{Stage, entries};

#[tokio::test]
async fn an_emptied_folder_is_held_until_it_is_confirmed() {
    let stage = Stage::set(&entries(20)).await;
    fs::remove_file(stage.root().join("a.yaml")).unwrap();
    stage.until_state(SourceState::Holding).await;
    assert_eq!(stage.recorder.told(), (stage.recorder.told().0, 0));
    assert_eq!(stage.port.board.read().held_deletions.len(), 20);
    stage.port.confirm.notify_one();
    stage.until(|told| told.0.is_empty() && told.1 == 20).await;
    stage.until_state(SourceState::Synced).await;
}

#[tokio::test]
async fn a_file_that_is_emptied_is_held_though_the_file_is_there() {
    let stage = Stage::set(&entries(3)).await;
    fs::write(stage.root().join("a.yaml"), "").unwrap();
    stage.until_state(SourceState::Holding).await;
    assert_eq!(stage.port.board.read().held_deletions.len(), 3);
    assert_eq!(stage.recorder.told().1, 0);
}

#[tokio::test]
async fn one_object_of_many_goes_at_once() {
    let stage = Stage::set(&entries(20)).await;
    fs::write(stage.root().join("a.yaml"), entries(19)).unwrap();
    stage.until(|told| told.1 == 1 && told.0.len() == 19).await;
}
