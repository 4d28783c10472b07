// Package kueue says what a Workload of Kueue waits for. It decides by the types and reasons of
// conditions; Kueue's messages are quoted.
//
// Everything is pure.
package kueue
