// Package forecast says what a PartitionPlan would do: which nodes it has, in which order and
// step they would be switched, and how long that would take. It is for `kubectl tranche plan
// --dry-run`. The order and the limits are those of package rollout.
//
// Everything is pure.
package forecast
