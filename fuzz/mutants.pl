#!/usr/bin/env perl
# mutants.pl < mutants.txt: puts every bug beside the right code of the checkout it runs in; prints their names. Each is off but
# for the one that KVTAP_MUTANT names when a test or target runs.
use strict;
use warnings;

my ($name, %files, @names);
local $/;
for my $bug (split /^== /m, <STDIN> =~ s/^#.*\n//mgr) {
    next unless $bug =~ s/^(\S+)\n//;
    $name = $1;
    push @names, $name;
    my $ask = "crate::is_mutant(\"$name\")";
    for my $edit (split /^-- /m, $bug) {
        next unless $edit =~ /^(\S+)\n(.*?)\n=>\n(.*?)\n?\z/s;
        my ($file, $right, $wrong) = ($1, $2, $3);
        $files{$file} //= do { open my $in, '<', $file or die "$file: $!"; <$in> };
        my $found = () = $files{$file} =~ /\Q$right\E/g;
        die "$name: $found places in $file\n" unless $found == 1;
        my $both = $wrong =~ /MUTANT/ ? $wrong =~ s/MUTANT/$ask/gr : "(if $ask { $wrong } else { $right })";
        $files{$file} =~ s/\Q$right\E/$both/;
    }
}
$files{'src/lib.rs'} //= do { open my $in, '<', 'src/lib.rs' or die; <$in> };
substr $files{'src/lib.rs'}, 0, 0, "#![allow(unused_parens)]\n";
$files{'src/lib.rs'} .= <<'RUST';

pub(crate) fn is_mutant(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("KVTAP_MUTANT").ok()).as_deref() == Some(name)
}
RUST
for my $file (keys %files) {
    open my $out, '>', $file or die "$file: $!";
    print $out $files{$file};
}
print "$_\n" for @names;
