// Package ledger stores records of claims and of the devices that they hold. There is one small
// file for each claim, so that the cost of a change does not depend on the number of claims, and
// a broken file affects one claim only.
//
// The ledger distinguishes the partitions of claims from foreign ones. ledger.go keeps the records,
// and counts their changes for other processes; read.go reads all of them. record.go has the format of
// a record, unusable.go the records that this version cannot use.
//
// # Versions
//
// During a rolling update, and after a rollback, a plugin reads records that a
// newer plugin wrote. These rules keep that safe:
//
//   - A record states the version that wrote it (version) and the oldest version
//     that can use it (minReader). Without minReader, the oldest is version itself.
//   - A reader uses every record whose minReader is not above its own version. It
//     ignores fields that it does not know, and keeps them when it writes the
//     record again.
//   - A reader leaves every other record alone. The record stays where it is, and
//     its claim can be neither prepared nor released by this reader. New claims get
//     nothing on the GPUs that the record names (see Unusable).
//   - The fields version, minReader, claim and devices[].placement.gpu keep their
//     names and meanings in all versions.
//   - A field that an older plugin may ignore needs no new version. A new state, or
//     a field that changes what a record holds, needs a new version and, if older
//     plugins would act wrongly on the record, a new minReader.
package ledger
