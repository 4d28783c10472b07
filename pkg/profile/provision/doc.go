// Package provision creates PartitionProfiles from files: those of the chart and those in its values.
// They are not part of the Helm release, because Helm validates their kind before it creates the
// CustomResourceDefinition.
//
// Such an object has a label and follows its file: edits are reverted, and it is deleted with the
// file. A profile without the label belongs to a person. It is not changed, and has precedence over
// a file of the same name.
package provision
