// Package xid says what errors mean that NVIDIA's driver reports for a GPU: the XIDs,
// which are its error numbers (xid.go, table.go), and its recovery actions
// (recovery.go). It classifies them and says what to do about them. Pure.
package xid
