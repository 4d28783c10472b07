// Package drivers has the drivers of all vendors on a node.
//
// set.go finds the driver of a GPU, and lists all GPUs. opener.go opens drivers, opened.go has the
// state of one driver, expected.go reports the drivers that should be open and are not.
package drivers
