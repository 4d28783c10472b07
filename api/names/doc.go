// Package names contains the names that programs of Tranche share or that administrators read:
// taints, labels, attributes, capacities, counters, pools, conditions, reasons, events,
// metrics, their values, variables in containers, and the version of printed output. The tables of
// the documentation are generated from the comments.
//
// It imports no other package of this module.
package names
