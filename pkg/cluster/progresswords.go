package cluster

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Remark is a sentence about a node.
type Remark struct {
	Text string
	// Warning is true if action may be needed, or a change is under way.
	Warning bool
}

// Title names the profile of the node: "profile cpx", or "profile spx → cpx" if another one is
// desired. It is empty without profiles.
func (n Progress) Title() string {
	switch {
	case n.Desired.ProfileName == n.Applied.ProfileName && n.Applied.ProfileName == "":
		return ""
	case n.Desired.ProfileName != n.Applied.ProfileName:
		return fmt.Sprintf("profile %s → %s", ProfileName(n.Applied.ProfileName), ProfileName(n.Desired.ProfileName))
	case !n.UpToDate && n.Kept == "":
		return fmt.Sprintf("profile %s, in an older version", n.Applied.ProfileName)
	}
	return "profile " + n.Applied.ProfileName
}

// ProfileName returns the name of a profile, or "none".
func ProfileName(profile string) string { return cmp.Or(profile, "none") }

// ModeText puts the modes of a GPU into words: "MIG on", "CPX NPS1". It is empty without modes.
func ModeText(m v1beta1.GPUModes) string {
	switch m.MIGMode {
	case v1beta1.MIGModeEnabled:
		return "MIG on"
	case v1beta1.MIGModeDisabled:
		return "MIG off"
	}
	return strings.TrimSpace(m.ComputePartition + " " + m.MemoryPartition)
}

// Sentences add to the title. There are none if the desired profile is applied.
func (n Progress) Sentences(now time.Time) []Remark {
	var out []Remark
	switch {
	case n.State == v1beta1.Failed:
		out = append(out, Remark{n.Failure(now), true})
	case n.Switching():
		out = append(out, Remark{n.Doings(now), true})
	case n.KeptReason == names.ReasonControlPlaneNotNamed && n.Applied.ProfileName == "":
		// Nobody has set a profile.
	case n.Kept != "":
		out = append(out, Remark{Sentence(n.Kept), n.KeptReason != names.ReasonPaused && n.KeptReason != names.ReasonControlPlaneNotNamed})
	}
	if n.PluginGone() {
		out = append(out, Remark{"It publishes none of its GPUs: see whether the kubelet plugin runs on the node.", true})
	}
	if n.Pending != "" {
		out = append(out, Remark{Sentence(n.Pending), false})
	}
	if n.Conflict != "" {
		out = append(out, Remark{Sentence(n.Conflict), true})
	}
	if n.Overridden != "" {
		out = append(out, Remark{Sentence(n.Overridden), true})
	}
	return out
}

// Doings describes a switch under way: "Draining since 2m, 8m left: evicts pods from …".
func (n Progress) Doings(now time.Time) string {
	text := n.During(now)
	if n.Switch.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", n.Switch.Attempt)
	}
	if doing := cmp.Or(n.Doing, n.Switch.Message); doing != "" {
		text += ": " + strings.TrimSuffix(doing, ".")
	}
	return text + "."
}

// During describes the state with its times: "Draining since 2m, 8m left".
func (n Progress) During(now time.Time) string {
	text := string(n.State)
	if !n.Switch.StateChangeTime.IsZero() {
		text += " since " + long(now.Sub(n.Switch.StateChangeTime.Time))
	}
	if n.Switch.DeadlineTime.IsZero() {
		return text
	}
	if left := n.Switch.DeadlineTime.Sub(now); left > 0 {
		return text + ", " + long(left) + " left"
	}
	return text + ", overdue by " + long(now.Sub(n.Switch.DeadlineTime.Time))
}

// Failure says why the last switch failed, what is applied, and when it is retried.
func (n Progress) Failure(now time.Time) string {
	head := "Failed"
	if !n.Switch.StateChangeTime.IsZero() {
		head += " " + long(now.Sub(n.Switch.StateChangeTime.Time)) + " ago"
	}
	if n.Switch.Reason != "" {
		head += " (" + n.Switch.Reason + ")"
	}
	said := fmt.Sprintf("%s: %s could not be applied", head, text.Profile(n.Switch.To.ProfileName))
	if n.Switch.Message != "" {
		said += ": " + strings.TrimSuffix(n.Switch.Message, ".")
	}
	said += "."
	if n.Switch.Reason != names.ReasonRollbackFailed {
		said += fmt.Sprintf(" The node is unchanged, with %s.", text.Profile(n.Switch.From.ProfileName))
	}
	return said + " " + n.again(now)
}

// again says when a failed switch is retried.
func (n Progress) again(now time.Time) string {
	switch {
	case len(n.Switch.Blockers) > 0:
		return "It is retried " + n.Again() + "."
	case !n.Switch.RetryTime.IsZero() && n.Switch.RetryTime.After(now):
		return fmt.Sprintf("Attempt %d starts in %s.", n.Switch.Attempt+1, long(n.Switch.RetryTime.Sub(now)))
	case !n.Switch.RetryTime.IsZero():
		return fmt.Sprintf("Attempt %d starts now.", n.Switch.Attempt+1)
	}
	return "It is retried " + n.Again() + "."
}

// Again says when a failed switch is retried, independent of the current time.
func (n Progress) Again() string {
	switch {
	case len(n.Switch.Blockers) > 0:
		return "when what blocks it is gone, which is checked at least every 30 minutes, or when the profile or its policy changes"
	case !n.Switch.RetryTime.IsZero():
		return "at " + text.Clock(n.Switch.RetryTime.Time)
	case n.Switch.RebootRequested:
		return "when the profile or its policy changes"
	}
	return "when the profile, its policy, the GPUs or the plugin's settings change"
}

// long formats a duration as kubectl does.
func long(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// Sentence makes a message of a condition a sentence. A field name at its start (spec.paused) is
// not capitalized.
func Sentence(text string) string {
	r := []rune(strings.TrimSuffix(text, "."))
	if len(r) == 0 {
		return ""
	}
	if first, _, _ := strings.Cut(string(r), " "); !strings.Contains(first, ".") {
		r[0] = unicode.ToUpper(r[0])
	}
	return string(r) + "."
}
