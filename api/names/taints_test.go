package names_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/api/names"
)

func TestRepartitioningTaintValue(t *testing.T) {
	assert.Equal(t, "none", names.RepartitioningTaintValue(""))
	assert.Equal(t, "all-1g.10gb", names.RepartitioningTaintValue("all-1g.10gb"))
	long := strings.Repeat("a", 53) + ".b" + strings.Repeat("c", 100)
	value, other := names.RepartitioningTaintValue(long), names.RepartitioningTaintValue(long+"d")
	assert.Empty(t, validation.IsValidLabelValue(value))
	assert.NotEqual(t, value, other, "two long names have different values")
}
