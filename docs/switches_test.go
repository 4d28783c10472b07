package docs_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestReasonsOfSwitches: every reason why a node may not follow its profile is in
// troubleshooting.md, and no other.
func TestReasonsOfSwitches(t *testing.T) {
	fine := []string{"Applied", "NoGPUs", "Switching", "None"}
	inCode := slices.Concat(constants(t, "../pkg/switchover", "Reason"), constants(t, "../api/v1alpha1", "Reason"))
	inCode = slices.DeleteFunc(inCode, func(reason string) bool { return slices.Contains(fine, reason) })
	inPage := firstColumn(t, "troubleshooting.md", "A node does not reach its profile")
	assert.ElementsMatch(t, sorted(inCode), sorted(inPage), "docs/troubleshooting.md (first list: code, second: page)")
}

// TestReferenceOfSwitches: the reference has the events of the controller that have names
// of their own.
func TestReferenceOfSwitches(t *testing.T) {
	events := literals(t, "../pkg/switchover", regexp.MustCompile(`^(Switch[A-Z][a-z]+|Repartitioning)$`))
	assert.ElementsMatch(t, sorted(slices.Compact(sorted(events))), sorted(firstColumn(t, "reference/cluster-objects.md", "Events of the controller")))
}
