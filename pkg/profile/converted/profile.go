package converted

import (
	"fmt"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// Profile is a configuration of another project as a PartitionProfile.
type Profile struct {
	// Name is the name of the PartitionProfile, set by the package formats.
	Name string
	// Original is the name that the configuration has in the file, and node labels for it.
	Original string
	Spec     v1alpha1.PartitionProfileSpec
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
