// Package reshape brings the cards of a node into the shape that a profile wants:
// MIG modes, partitions that stay, AMD's compute and memory modes.
//
// It imports pkg/gpu, pkg/settings, pkg/layout and api/v1alpha1. plan.go says what
// has to change, and touches nothing; execute.go changes it and reads it back;
// intent.go has written down before what is about to change.
package reshape
