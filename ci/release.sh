#!/usr/bin/env bash
# The steps of .github/workflows/release.yml that are more than one command. Each can be run alone; files are written to
# dist/. ci/nightly.sh does not run them: `build` and `push` need docker, and `sbom` needs cargo-cyclonedx.
#
#   version TAG             fails unless TAG is `v` and the version of the crates and the chart
#   build ARCH TARGET       the image, for this machine's architecture, and an archive of its program, with man pages
#   sbom TARGET...          the crates of the program for a target, as a CycloneDX document each
#   checksums               SHA256SUMS of the archives and documents
#   push IMAGE ARCH...      pushes the images and an index of them; prints NAME=DIGEST lines for the workflow
#
# The archive and the image have the same program. It is built once, by the compiler of deploy/Containerfile, so it
# needs the glibc of Debian 12 or a later one.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' cli/Cargo.toml)
dist=dist

check_version() {
    local of file
    for file in Cargo.toml cli/Cargo.toml; do
        of=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$file")
        [ "$1" = "v$of" ] || { echo "the tag $1 is not v$of, the version in $file"; return 1; }
    done
    for key in version appVersion; do
        of=$(sed -n "s/^$key: //p" deploy/chart/Chart.yaml)
        [ "$1" = "v$of" ] || { echo "the tag $1 is not v$of, the $key in deploy/chart/Chart.yaml"; return 1; }
    done
}

build() {
    local arch=$1 target=$2 container folder
    mkdir -p "$dist/images"
    docker build --file deploy/Containerfile --tag "portolan:$version-$arch" .
    folder=$(mktemp -d)
    container=$(docker create "portolan:$version-$arch")
    docker cp "$container:/usr/local/bin/portolan" "$folder/portolan"
    docker rm "$container" >/dev/null
    "$folder/portolan" --version
    cp LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md "$folder"
    "$folder/portolan" man "$folder/man1"
    mkdir "$folder/completions"
    for shell in bash zsh fish; do "$folder/portolan" completions "$shell" >"$folder/completions/portolan.$shell"; done
    tar --create --gzip --file "$dist/portolan-$version-$target.tar.gz" --directory "$folder" --sort=name \
        --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" \
        portolan LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md man1 completions
    docker save "portolan:$version-$arch" | gzip >"$dist/images/$arch.tar.gz"
    rm -rf "$folder"
}

sbom() {
    local target
    mkdir -p "$dist"
    for target in "$@"; do
        # Writes a document beside the manifest of each crate of the workspace.
        cargo cyclonedx --manifest-path cli/Cargo.toml --features cluster --format json --spec-version 1.5 --no-build-deps \
            --target "$target" --override-filename "portolan-$target.cdx"
        mv "cli/portolan-$target.cdx.json" "$dist/portolan-$target.cdx.json"
        find . -name "portolan-$target.cdx.json" -not -path "./$dist/*" -not -path './target/*' -delete
    done
}

checksums() {
    (cd "$dist" && sha256sum -- portolan-*.tar.gz portolan-*.cdx.json >SHA256SUMS && cat SHA256SUMS)
}

# Prints the digest of a pushed image.
digest_of() {
    local digest
    digest=$(docker buildx imagetools inspect --format '{{json .Manifest}}' "$1" | jq -r .digest)
    [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "$1 has no digest: $digest" >&2; return 1; }
    echo "$digest"
}

push() {
    local image=$1 arch name digest references=()
    shift
    for arch in "$@"; do
        name="$image:$version-$arch"
        {
            docker load --input "$dist/images/$arch.tar.gz"
            docker tag "portolan:$version-$arch" "$name"
            docker push "$name"
        } >&2
        digest=$(digest_of "$name")
        references+=("$image@$digest")
        echo "$arch=$digest"
    done
    docker buildx imagetools create --tag "$image:$version" "${references[@]}" >&2
    digest=$(digest_of "$image:$version")
    echo "index=$digest"
}

case ${1:-} in
version) check_version "$2" ;;
build) build "$2" "$3" ;;
sbom) sbom "${@:2}" ;;
checksums) checksums ;;
push) push "${@:2}" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
