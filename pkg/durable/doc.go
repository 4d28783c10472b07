// Package durable writes files that must survive a crash and a power cut, wholly or not
// at all. file.go writes one file, format.go gives it a version, and state.go is a file that one
// process reads once and then replaces. install.go copies programs from the plugin's image to the host:
// what runs on the host cannot see the image.
//
// # Versions
//
// During a rolling update, and after a rollback, a plugin reads files that a newer plugin wrote.
// These rules keep that safe:
//
//   - A file states the version that wrote it (version) and the oldest version that can use it
//     (minReader). Without minReader, the oldest is version itself.
//   - A reader uses every file whose minReader is not above its own version. It ignores keys that it
//     does not know. When it writes the file again, it keeps those of the file and of its entries that
//     have a field for them: devices, GPUs, profiles.
//   - A reader leaves every other file alone: it neither uses nor replaces it, and says so.
//   - The keys version and minReader keep their names and meanings in all versions. All other keys
//     keep theirs within a version.
//   - A key that an older plugin may ignore needs no new version. A new version is needed for all else,
//     and a new minReader if older plugins would act wrongly on the file, or would lose the key: those
//     inside other objects, such as layouts.
package durable
