IFS= read -r -d '' TERRET_COMMAND; exec {TERRET_STATE}<&0 </dev/null;
