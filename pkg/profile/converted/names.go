package converted

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ObjectName is the name of the PartitionProfile for a configuration: its name in lower case, with -
// in place of _ and a dot in place of +. The error says why there is none.
func ObjectName(original string) (string, error) {
	name := strings.NewReplacer("_", "-", "+", ".").Replace(strings.ToLower(original))
	switch {
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return "", fmt.Errorf("%q cannot be the name of a PartitionProfile, even in lower case and with - for _: rename it", original)
	case len(name) > validation.LabelValueMaxLength:
		return "", fmt.Errorf("%q is too long for the name of a PartitionProfile, which has at most %d characters: rename it", original, validation.LabelValueMaxLength)
	}
	return name, nil
}
