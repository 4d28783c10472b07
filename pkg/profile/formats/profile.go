package formats

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Profile is a configuration of another project as a PartitionProfile.
type Profile struct {
	// Name is the name of the PartitionProfile, set by package formats.
	Name string
	// Original is the name that the configuration has in the file, and node labels for it.
	Original string
	Spec     v1beta1.PartitionProfileSpec
	// Notes say what of the configuration has no counterpart, for people.
	Notes []string
	// Err is why the configuration cannot be used; Spec is then empty. The others of the file can.
	Err error
}

// Note adds a note about the value at a path.
func (p *Profile) Note(path, format string, args ...any) {
	p.Notes = append(p.Notes, path+": "+fmt.Sprintf(format, args...))
}

// Fail returns the profile with an error in place of its content.
func (p *Profile) Fail(err error) Profile {
	return Profile{Name: p.Name, Original: p.Original, Err: err}
}

// off are settings without shares: neither mig-parted nor AMD's device plugin shares GPUs.
func off() *v1beta1.Sharing { return &v1beta1.Sharing{WholeGPUs: new(bool)} }

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
