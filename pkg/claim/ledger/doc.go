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
// The rules of package durable hold for each record. The claim of a record that needs a newer version can
// be neither prepared nor released. New claims get nothing on the GPUs that the record names (see
// Unusable). So claim and devices[].placement.gpu keep their names and meanings in all versions.
// A new state, or a field that changes what a record holds, needs a new version.
package ledger
