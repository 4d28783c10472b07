// Package provision makes PartitionProfiles of files: of those that come with the
// chart and of those among its values. They are no objects of the release, since
// Helm looks for their kind before it has made it.
//
// What comes of a file is labelled and follows it: an edit of the object is undone,
// and the object goes with the file. A profile without the label is a person's; it is
// left alone, and holds in place of a file of the same name.
//
// Imports: api/v1alpha1, pkg/profile, pkg/profile/strict.
package provision
