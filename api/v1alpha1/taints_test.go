package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func TestRepartitioningTaintValue(t *testing.T) {
	assert.Equal(t, "none", v1alpha1.RepartitioningTaintValue(""))
	assert.Equal(t, "all-1g.10gb", v1alpha1.RepartitioningTaintValue("all-1g.10gb"))
	long := strings.Repeat("a", 53) + ".b" + strings.Repeat("c", 100)
	value, other := v1alpha1.RepartitioningTaintValue(long), v1alpha1.RepartitioningTaintValue(long+"d")
	assert.Empty(t, validation.IsValidLabelValue(value))
	assert.NotEqual(t, value, other, "two long names have different values")
}
