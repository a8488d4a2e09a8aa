//! Names that a user may have meant.

/// How an error about an unknown name ends: the most similar names, or advice if none is
/// similar.
pub(crate) fn did_you_mean<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    similar(name, known).unwrap_or_else(|| "check the spelling".to_owned())
}

/// A question with the most similar names, if there are any.
pub(crate) fn similar<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<String> {
    match &near(name, known)[..] {
        [] => None,
        [only] => Some(format!("did you mean {only}?")),
        [rest @ .., last] => Some(format!("did you mean {} or {last}?", rest.join(", "))),
    }
}

/// The most similar names, the nearest first: at most three.
pub(crate) fn near<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let lower = name.to_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|it| (strsim::damerau_levenshtein(&lower, &it.to_lowercase()), it))
        .filter(|(distance, it)| *distance <= 1 + name.len().min(it.len()) / 4)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(3);
    near.into_iter().map(|(_, it)| it).collect()
}

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn similar_names_are_offered_nearest_first() {
        let known = ["worker-1", "worker-12", "gpu-1"];
        assert_eq!(did_you_mean("worker-2", known), "did you mean worker-1 or worker-12?");
        assert_eq!(did_you_mean("Gpu1", known), "did you mean gpu-1?");
        assert_eq!(did_you_mean("database", known), "check the spelling");
    }
}
