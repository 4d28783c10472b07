// Package picture draws what pkg/cluster, pkg/why, pkg/usage and others say for a terminal of a given
// width. It only lays out: sums and sentences are those of pkg/cluster/overview.
//
//   - draw.go, bar.go, holders.go, follow.go, footer.go: each GPU as a bar, divided into the
//     partitions that are held, with their holders and the free capacity
//   - overview.go: the sums of many nodes
//   - progress.go, rollout.go, forecast.go, defrag.go: switches of profiles, plans, moves of pods
//   - explanation.go, usage.go: why pods wait, and how much is used
//   - page.go, table.go: paragraphs that hang under their heads, tables, and colors. Names and
//     commands are never broken, since people copy them
//   - screen.go, clean.go, live.go, progressline.go: what is written to, and what replaces itself there
//
// Widths, wrapping and styles are those of github.com/charmbracelet/x/ansi. All but the last is pure.
package picture
