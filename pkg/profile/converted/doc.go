// Package converted has what the readers of other projects' files return: PartitionProfiles with
// their names, and notes.
package converted
