// Package drivers combines the drivers of all vendors on a node. A call for a GPU goes to the
// driver of its vendor.
//
// set.go dispatches calls, modes.go those that change modes for profiles, gpusettings.go those
// for sharing. opener.go opens drivers, opened.go has the state of one driver, missing.go the
// drivers that should be open and are not.
package drivers
