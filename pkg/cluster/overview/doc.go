// Package overview decides what terminal and page show of the model of pkg/cluster, and in which
// words. They only draw it.
//
//   - overview.go, trouble.go: the sums of many nodes by model and state, and the nodes in trouble
//   - changes.go: what is different from one moment to the next
//   - snapshot.go, node.go, groups.go: what is known of the cluster at a time, with a heat map
//   - viewer.go: what a user may see of a Snapshot
//   - ask.go, fits.go: how often what a person types fits now
//   - usage.go: how busy a GPU was
//   - words.go: names and sentences
//
// Everything is pure but Viewer.Learn, which asks what the user may list.
package overview
