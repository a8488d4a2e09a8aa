//! Records the target and the features for `portolan --version`.

fn main() {
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=PORTOLAN_TARGET={target}");
    let features = std::env::vars().filter_map(|(name, _)| {
        let name = name.strip_prefix("CARGO_FEATURE_")?;
        (name != "DEFAULT").then(|| name.to_lowercase().replace('_', "-"))
    });
    let mut features: Vec<String> = features.collect();
    features.sort();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    println!("cargo:rustc-env=PORTOLAN_FEATURES={features}");
    println!("cargo:rerun-if-changed=build.rs");
}
