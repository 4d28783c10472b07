package names

// OutputVersion is the version of what the programs print with -o json and -o yaml. With the same
// version, fields and kinds may be added, and never change their meaning.
const OutputVersion = "cli.tranche.dev/v1beta1"
