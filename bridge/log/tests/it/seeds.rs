//! The checks of the fuzz targets on the seeds that they start from.

#[path = "../../../../fuzz/checks/import.rs"]
mod import;
#[path = "../../../../fuzz/checks/scrub.rs"]
mod scrub;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let entries = std::fs::read_dir(folder.join(target)).unwrap();
    let seeds: Vec<_> = entries
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(seeds.len() >= 5);
    seeds
}

#[test]
fn what_must_hold_for_any_import_holds_for_the_seeds() {
    for seed in seeds("import") {
        import::any_bytes(&seed);
    }
}

/// Each seed as it is, and cut in pieces of one length after the other.
#[test]
fn check_159_no_secret_survives_whatever_the_cuts() {
    for seed in seeds("scrub") {
        scrub::any_bytes(&seed);
        let cuts = seed.windows(2).position(|pair| pair == b"\xFF\0").unwrap();
        for length in 1..=80 {
            let text = seed.get(cuts..).unwrap();
            scrub::any_bytes(&[&[length], text].concat());
        }
    }
}
