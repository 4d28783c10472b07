// Package ledger is the driver's record of claims and of the hardware that they
// hold: one small file for each claim, so that the cost of a change does not
// grow with the number of claims and a broken file spoils one claim only.
//
// The hardware is the truth, the ledger is the intent: it is what tells our
// partitions from those that somebody else made.
package ledger
