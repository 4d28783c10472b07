// Package adopt writes what node labels and files of other projects say into GPUNodes: a label
// sets spec.profileName, and a configuration that it names becomes a PartitionProfile. Nothing else
// in Tranche reads these labels and files.
//
// labels.go has the labels and their precedence, decide.go what a GPUNode should say by them,
// configmaps.go the files, adopt.go writes, and report.go has the labels in which projects expect
// to see the progress.
package adopt
