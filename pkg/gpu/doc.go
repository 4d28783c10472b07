// Package gpu is the vocabulary that every other room shares: cards, the ways
// to cut them, what each cut takes from the card, and how all of it is named.
//
// It is pure: no files, no hardware, no API server, and it imports nothing of
// this module.
package gpu
