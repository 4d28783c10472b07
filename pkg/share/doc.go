// Package share is what several claims hold at once: which share devices a card
// has, and what their holders find.
//
// devices.go is pure: card and settings in, placements out.
//
// It may import the vocabulary (pkg/gpu) and the settings (pkg/settings).
package share
