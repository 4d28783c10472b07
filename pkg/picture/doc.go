// Package picture turns what the API server knows (ResourceSlices and
// ResourceClaims) into a picture of every card: how it is cut, who holds which
// piece, and what still fits.
//
// Three steps, each of them pure: Build makes a Model of the API objects, Draw
// makes text of a Model for a terminal of a given width, WriteJSON makes JSON
// of it. Reading the API server is the caller's affair.
//
// The package knows cards by their counters, not by their vendor: the positions
// of a bar are the counters memory-slice-0, -1, … that a card publishes, and a
// device takes the positions that it consumes. A card without such counters has
// as many positions as the finest cut of its memory has parts. A type of device
// that is not known here is drawn under its own name.
//
// It may import pkg/gpu, pkg/progress and the API types, nothing else of this
// module.
package picture
