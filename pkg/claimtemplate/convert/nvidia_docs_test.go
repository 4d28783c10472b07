package convert

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page names each attribute and capacity that is translated, or refused with a remedy of its own.
func TestPageNamesAttributes(t *testing.T) {
	page, err := os.ReadFile("../../../docs/admin/migrate-from-nvidia-dra-driver.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "### Attributes in selectors")
	table, _, _ = strings.Cut(table, "### Parameters")
	named := map[string]bool{}
	for _, name := range regexp.MustCompile("`([a-zA-Z]+)`").FindAllStringSubmatch(table, -1) {
		named[name[1]] = true
	}
	ofVFIO := map[string]bool{"numa": true, "deviceID": true, "vendorID": true, "iommuFDEnabled": true}
	for name := range sharedAttributes {
		assert.True(t, named[name], name)
	}
	for name := range remedies {
		assert.True(t, named[name] || ofVFIO[name], name)
	}
	for name := range sharedCapacities {
		assert.True(t, named[name], name)
	}
}
